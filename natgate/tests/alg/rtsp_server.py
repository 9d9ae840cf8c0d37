# A server of RTSP, GStreamer's: pictures and a tone at /media.

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer

Gst.init(None)
server = GstRtspServer.RTSPServer()
server.set_address("0.0.0.0")
server.set_service("554")
factory = GstRtspServer.RTSPMediaFactory()
factory.set_launch(
    "( videotestsrc is-live=true"
    " ! video/x-raw,width=160,height=120,format=I420,framerate=25/1"
    " ! jpegenc ! rtpjpegpay name=pay0 pt=26"
    " audiotestsrc is-live=true ! audio/x-raw,rate=8000,channels=1"
    " ! mulawenc ! rtppcmupay name=pay1 pt=0 )"
)
server.get_mount_points().add_factory("/media", factory)
server.attach(None)
GLib.MainLoop().run()
