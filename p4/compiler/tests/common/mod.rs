//! Programs about one construct, put into a frame that completes them.

/// Parts of a program that its frame lacks.
#[derive(Clone, Copy, Default)]
pub(crate) struct Parts<'t> {
    /// Declarations at the top level.
    pub(crate) decls: &'t str,
    /// States of the parser; if empty, one state that extracts `hdr.words`.
    pub(crate) states: &'t str,
    /// Declarations of the control.
    pub(crate) locals: &'t str,
    /// Body of the control, after the statement that sends packets to port 2.
    pub(crate) body: &'t str,
}

/// A whole program.
pub(crate) fn program(parts: Parts<'_>) -> String {
    let Parts { decls, states, locals, body } = parts;
    let states = match states {
        "" => "state start { pkt.extract(hdr.words); transition accept; }",
        states => states,
    };
    format!(
        "#include <core.p4>
#include <dpdk/pna.p4>
header words_t {{ bit<16> a; bit<16> b; bit<32> c; }}
struct headers_t {{ words_t words; words_t other; }}
struct metadata_t {{ bit<32> note; }}
{decls}
parser P(packet_in pkt, out headers_t hdr, inout metadata_t meta,
         in pna_main_parser_input_metadata_t istd) {{
    {states}
}}
control Pre(in headers_t hdr, inout metadata_t meta, in pna_pre_input_metadata_t istd,
            inout pna_pre_output_metadata_t ostd) {{
    apply {{}}
}}
control Main(inout headers_t hdr, inout metadata_t meta, in pna_main_input_metadata_t istd,
             inout pna_main_output_metadata_t ostd) {{
    {locals}
    apply {{
        send_to_port((PortId_t) 2);
        {body}
    }}
}}
control Dep(packet_out pkt, in headers_t hdr, in metadata_t meta,
            in pna_main_output_metadata_t ostd) {{
    apply {{ pkt.emit(hdr); }}
}}
PNA_NIC(P(), Pre(), Main(), Dep()) main;
"
    )
}
