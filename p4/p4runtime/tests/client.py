"""A controller as people write them, with P4Runtime's own client library: what it asks, and what it expects.

client.py ADDRESS P4INFO PROGRAM fill|read|hear
"""

import os
import queue
import sys
import traceback

import grpc
from google.protobuf import text_format
from google.rpc import status_pb2
from p4.config.v1 import p4info_pb2
from p4.v1 import p4runtime_pb2 as p4
from p4.v1 import p4runtime_pb2_grpc

address, p4info_file, program_file, phase = sys.argv[1:]
DEVICE = 3
TIMEOUT = 60

channel = grpc.insecure_channel(address)
stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)

info = p4info_pb2.P4Info()
with open(p4info_file) as file:
    text_format.Parse(file.read(), info)
with open(program_file, "rb") as file:
    program = file.read()
tables = {table.preamble.alias: table for table in info.tables}
actions = {action.preamble.alias: action for action in info.actions}
counters = {counter.preamble.alias: counter.preamble.id for counter in info.counters}
meters = {meter.preamble.alias: meter.preamble.id for meter in info.meters}


class Session:
    """A stream by which a controller says its election id and hears who is the primary one."""

    def __init__(self):
        self.said = queue.Queue()
        self.hears = stub.StreamChannel(iter(self.said.get, None))

    def say(self, election, device=DEVICE):
        request = p4.StreamMessageRequest()
        request.arbitration.device_id = device
        request.arbitration.election_id.low = election
        self.said.put(request)

    def hear(self):
        return next(self.hears)

    def code(self):
        arbitration = self.hear().arbitration
        assert arbitration.device_id == DEVICE, arbitration
        return arbitration.status.code

    def end(self):
        self.said.put(None)


def refused(code, call, request):
    """The refusal of a call, which has this code."""
    try:
        answer = call(request, timeout=TIMEOUT)
        if call is stub.Read:
            list(answer)
    except grpc.RpcError as error:
        assert error.code() == code, f"{error} instead of {code}"
        return error
    raise AssertionError(f"this is accepted: {request}")


def value(number):
    return number.to_bytes(max(1, (number.bit_length() + 7) // 8), "big")


def entry(table, keys, action=None, arguments=()):
    """A table's entry; prefixes are pairs of value and length."""
    found = p4.TableEntry(table_id=tables[table].preamble.id)
    for field, key in zip(tables[table].match_fields, keys, strict=True):
        match = found.match.add(field_id=field.id)
        if isinstance(key, tuple):
            match.lpm.value, match.lpm.prefix_len = value(key[0]), key[1]
        else:
            match.exact.value = value(key)
    if action is not None:
        call(found, action, arguments)
    return found


def call(found, action, arguments):
    found.action.action.action_id = actions[action].preamble.id
    for param, argument in zip(actions[action].params, arguments, strict=True):
        found.action.action.params.add(param_id=param.id, value=value(argument))


def write(kind, *entries, election=2):
    request = p4.WriteRequest(device_id=DEVICE)
    request.election_id.low = election
    for one in entries:
        request.updates.add(type=kind, entity=entity(one))
    return request


def entity(one):
    if isinstance(one, p4.TableEntry):
        return p4.Entity(table_entry=one)
    if isinstance(one, p4.CounterEntry):
        return p4.Entity(counter_entry=one)
    if isinstance(one, p4.DigestEntry):
        return p4.Entity(digest_entry=one)
    return p4.Entity(meter_entry=one)


def do(kind, *entries):
    stub.Write(write(kind, *entries), timeout=TIMEOUT)


def asked(*entries, device=DEVICE):
    return p4.ReadRequest(device_id=device, entities=[entity(one) for one in entries])


def read(*entries):
    pieces = list(stub.Read(asked(*entries), timeout=TIMEOUT))
    return [one for piece in pieces for one in piece.entities]


def rows(table):
    found = read(p4.TableEntry(table_id=tables[table].preamble.id))
    return [one.table_entry for one in found]


def configured(action, p4info=info, device_config=b""):
    request = p4.SetForwardingPipelineConfigRequest(device_id=DEVICE, action=action)
    request.election_id.low = 2
    request.config.p4info.CopyFrom(p4info)
    request.config.p4_device_config = device_config
    request.config.cookie.cookie = 77
    return request


def arbitrate():
    one, two = Session(), Session()
    one.say(1)
    assert one.code() == 0
    two.say(1)
    try:
        two.hear()
        raise AssertionError("two controllers have one number")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    two.end()
    two = Session()
    two.say(2)
    assert (two.code(), one.code()) == (0, 6)
    refused(grpc.StatusCode.PERMISSION_DENIED, stub.Write, write(p4.Update.INSERT, election=1))
    stub.Write(write(p4.Update.INSERT, election=2), timeout=TIMEOUT)
    two.end()
    assert one.code() == 5
    refused(grpc.StatusCode.PERMISSION_DENIED, stub.Write, write(p4.Update.INSERT, election=2))
    elsewhere = Session()
    elsewhere.say(9, device=4)
    try:
        elsewhere.hear()
        raise AssertionError("there is no such device")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.NOT_FOUND, error
    elsewhere.end()
    one.say(2)
    assert one.code() == 0
    one.said.put(p4.StreamMessageRequest(packet=p4.PacketOut(payload=b"x")))
    error = one.hear().error
    assert error.canonical_code == grpc.StatusCode.UNIMPLEMENTED.value[0], error
    assert error.HasField("packet_out")
    return one


def configure():
    kind = p4.SetForwardingPipelineConfigRequest
    get = p4.GetForwardingPipelineConfigRequest(device_id=DEVICE)
    before = stub.GetForwardingPipelineConfig(get, timeout=TIMEOUT).config
    assert before.p4info == info and before.p4_device_config == program
    assert not before.HasField("cookie")
    for action in [kind.VERIFY, kind.VERIFY_AND_SAVE, kind.VERIFY_AND_COMMIT]:
        stub.SetForwardingPipelineConfig(configured(action), timeout=TIMEOUT)
    saved = kind(device_id=DEVICE, action=kind.COMMIT)
    saved.election_id.low = 2
    stub.SetForwardingPipelineConfig(saved, timeout=TIMEOUT)
    refused(grpc.StatusCode.FAILED_PRECONDITION, stub.SetForwardingPipelineConfig, saved)
    same = configured(kind.RECONCILE_AND_COMMIT, device_config=program)
    stub.SetForwardingPipelineConfig(same, timeout=TIMEOUT)
    get.response_type = get.COOKIE_ONLY
    after = stub.GetForwardingPipelineConfig(get, timeout=TIMEOUT).config
    assert after.cookie.cookie == 77 and not after.HasField("p4info")
    other = p4info_pb2.P4Info()
    other.CopyFrom(info)
    other.tables[1].size += 1
    wrong = configured(kind.VERIFY, p4info=other)
    error = refused(grpc.StatusCode.INVALID_ARGUMENT, stub.SetForwardingPipelineConfig, wrong)
    assert "`p4info.tables.size` is another" in error.details(), error
    wrong = configured(kind.VERIFY_AND_COMMIT, device_config=b"another")
    refused(grpc.StatusCode.INVALID_ARGUMENT, stub.SetForwardingPipelineConfig, wrong)


def fill():
    insert = p4.Update.INSERT
    own, far = [0x020000000001, 0x020000000002], [0x020000000011, 0x020000000022]
    ten, pool = 0x0A000000, 0xCB007101
    do(
        insert,
        entry("interfaces", [1], "inside", [own[0]]),
        entry("interfaces", [2], "outside", [own[1]]),
        entry("next_hops", [1, 1], "neighbor", [own[0], far[0]]),
        entry("next_hops", [2, 2], "neighbor", [own[1], far[1]]),
        entry("subscribers", [(ten, 8)], "subscriber", [7, 0]),
        entry("pool", [0], "external_address", [pool, 1024, 65535]),
        entry("routes", [(ten, 8)], "via", [1, 1]),
        entry("upload", [6, ten + 80, 8080], "to_external", [pool, 80]),
        entry("download", [6, pool, 80], "to_internal", [ten + 80, 8080]),
    )
    anywhere = p4.TableEntry(table_id=tables["routes"].preamble.id)
    call(anywhere, "via", [2, 2])
    do(insert, anywhere)
    assert sorted(len(one.match) for one in rows("routes")) == [0, 1]
    static = entry("upload", [6, ten + 80, 8080], "to_external", [pool, 80])
    assert rows("upload") == [static]
    assert read(entry("upload", [6, ten + 80, 8080]))[0].table_entry == static
    assert read(entry("upload", [6, ten + 81, 8080])) == []
    rate = p4.MeterEntry(meter_id=meters["subscriber_rate"], index=p4.Index(index=7))
    rate.config.cir, rate.config.cburst, rate.config.pir, rate.config.pburst = 1, 10**6, 2, 10**6
    do(p4.Update.MODIFY, rate)
    assert read(rate)[0].meter_entry == rate


def change():
    stations = [entry("stations", [mac], "at", [3]) for mac in range(1000)]
    do(p4.Update.INSERT, *stations)
    bytes_of = lambda found: {one.SerializeToString() for one in found}
    everything = bytes_of(one.table_entry for one in read(p4.TableEntry()))
    assert len(everything) == 1010 and everything > bytes_of(stations)
    assert bytes_of(rows("stations")) == bytes_of(stations)
    do(p4.Update.MODIFY, entry("stations", [5], "at", [4]))
    assert read(entry("stations", [5]))[0].table_entry.action.action.params[0].value == b"\x04"
    # Of several updates those are done that can be, and each is told.
    mixed = write(p4.Update.INSERT, entry("stations", [5000], "at", [3]), stations[0])
    error = refused(grpc.StatusCode.UNKNOWN, stub.Write, mixed)
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    status = status_pb2.Status.FromString(details)
    codes = []
    for one in status.details:
        update = p4.Error()
        assert one.Unpack(update)
        codes.append(update.canonical_code)
    assert codes == [0, 6], status
    assert len(rows("stations")) == 1001
    do(p4.Update.DELETE, *(entry("stations", [mac]) for mac in [5000, *range(1000)]))
    assert rows("stations") == []


def failed(code, kind, one):
    """The one update of a Write fails with this code."""
    error = refused(grpc.StatusCode.UNKNOWN, stub.Write, write(kind, one))
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    update = p4.Error()
    assert status_pb2.Status.FromString(details).details[0].Unpack(update)
    assert update.canonical_code == code.value[0], f"{update} instead of {code}"


def refuse():
    insert, modify, delete = p4.Update.INSERT, p4.Update.MODIFY, p4.Update.DELETE
    codes = grpc.StatusCode
    failed(codes.NOT_FOUND, insert, p4.TableEntry(table_id=0x02000001))
    failed(codes.NOT_FOUND, delete, entry("stations", [5]))
    failed(codes.NOT_FOUND, modify, entry("stations", [5], "at", [3]))
    failed(codes.OUT_OF_RANGE, insert, entry("stations", [1 << 48], "at", [3]))
    failed(codes.OUT_OF_RANGE, insert, entry("stations", [1], "at", [1 << 32]))
    failed(codes.INVALID_ARGUMENT, insert, entry("stations", [1], "inside", [3]))
    failed(codes.INVALID_ARGUMENT, insert, entry("stations", [1], "unknown_station"))
    failed(codes.INVALID_ARGUMENT, insert, p4.TableEntry(table_id=tables["stations"].preamble.id))
    failed(codes.INVALID_ARGUMENT, insert, entry("routes", [(0x0A000001, 8)], "via", [1, 1]))
    failed(codes.INVALID_ARGUMENT, insert, entry("routes", [(0, 33)], "via", [1, 1]))
    ranked = entry("stations", [1], "at", [3])
    ranked.priority = 5
    failed(codes.INVALID_ARGUMENT, insert, ranked)
    default = p4.TableEntry(table_id=tables["stations"].preamble.id, is_default_action=True)
    is_const = read(default)[0].table_entry
    assert is_const.is_default_action and is_const.action.action.action_id == actions["unknown_station"].preamble.id
    call(default, "at", [1])
    failed(codes.PERMISSION_DENIED, modify, default)
    beyond = p4.CounterEntry(counter_id=counters["drops"], index=p4.Index(index=256))
    beyond.data.packet_count = 1
    failed(codes.OUT_OF_RANGE, modify, beyond)
    other_device = asked(p4.TableEntry(), device=4)
    refused(codes.NOT_FOUND, stub.Read, other_device)
    register = p4.Entity(register_entry=p4.RegisterEntry())
    refused(codes.UNIMPLEMENTED, stub.Read, p4.ReadRequest(device_id=DEVICE, entities=[register]))
    atomic = write(insert, entry("stations", [1], "at", [3]))
    atomic.atomicity = p4.WriteRequest.DATAPLANE_ATOMIC
    refused(codes.UNIMPLEMENTED, stub.Write, atomic)
    role = write(insert, entry("stations", [1], "at", [3]))
    role.role = "somebody"
    refused(codes.UNIMPLEMENTED, stub.Write, role)
    long = write(insert, entry("stations", [1], "at", [3]))
    long.role = "x" * (5 << 20)
    refused(codes.OUT_OF_RANGE, stub.Write, long)


def look():
    """After packets: one mapping that they made, and what they counted."""
    learnt = [one for one in rows("upload") if one.match[0].exact.value == b"\x11"]
    assert len(learnt) == 1, learnt
    assert [one.exact.value for one in learnt[0].match] == [b"\x11", b"\x0a\x00\x00\x05", b"\x0f\xa0"]
    everything = read(p4.CounterEntry(counter_id=counters["drops"]))
    assert len(everything) == 256
    drops = {one.counter_entry.index.index: one.counter_entry.data.packet_count for one in everything}
    assert {reason: count for reason, count in drops.items() if count} == {6: 1}, drops
    seven = p4.CounterEntry(counter_id=counters["subscriber_out"], index=p4.Index(index=7))
    [found] = read(seven)
    assert (found.counter_entry.data.packet_count, found.counter_entry.data.byte_count) == (1, 28)
    session = Session()
    session.say(2)
    assert session.code() == 0
    seven.data.packet_count = 5
    do(p4.Update.MODIFY, seven)
    assert read(seven)[0].counter_entry.data.packet_count == 5
    session.end()


def hear():
    """A program sends frames, each of them three times, and a digest with each."""
    insert, modify, delete = p4.Update.INSERT, p4.Update.MODIFY, p4.Update.DELETE
    session = Session()
    session.say(2)
    assert session.code() == 0

    def next_of(kind, most=1000):
        for _ in range(most):
            message = session.hear()
            assert message.WhichOneof("update") in ["packet", "digest"], message
            if message.HasField(kind):
                return getattr(message, kind)
        raise AssertionError(f"there is no {kind}")

    frame = next_of("packet").payload
    assert frame[0] == 0 and frame[1] in [1, 2, 3] and frame[2:] == bytes(6), frame
    # Nobody has asked for digests.
    assert all(session.hear().HasField("packet") for _ in range(10))
    failed(grpc.StatusCode.NOT_FOUND, insert, p4.DigestEntry(digest_id=5))
    [news] = info.digests
    every = p4.DigestEntry(digest_id=news.preamble.id)
    every.config.max_list_size = 1
    failed(grpc.StatusCode.NOT_FOUND, modify, every)
    do(insert, every)
    failed(grpc.StatusCode.ALREADY_EXISTS, insert, every)
    assert [one.digest_entry for one in read(p4.DigestEntry())] == [every]
    one, two = next_of("digest"), next_of("digest")
    assert one.digest_id == news.preamble.id and two.list_id > one.list_id and one.timestamp > 0
    [data] = one.data
    number, low = [member.bitstring for member in data.struct.members]
    assert number in [b"\x01", b"\x02", b"\x03"] and low == b"\0", data
    # Three that differ in one list, and no more of them before it is acknowledged.
    three = p4.DigestEntry(digest_id=news.preamble.id)
    three.config.max_list_size, three.config.max_timeout_ns = 3, 10**12
    three.config.ack_timeout_ns = 10**12
    do(modify, three)
    whole = next_of("digest")
    while len(whole.data) < 3:
        whole = next_of("digest")
    assert len({one.SerializeToString() for one in whole.data}) == 3, whole
    assert all(session.hear().HasField("packet") for _ in range(10))
    ack = p4.StreamMessageRequest()
    ack.digest_ack.digest_id, ack.digest_ack.list_id = whole.digest_id, whole.list_id
    session.said.put(ack)
    again = next_of("digest")
    assert again.list_id > whole.list_id and len(again.data) == 3, again
    do(delete, three)
    assert read(p4.DigestEntry()) == []
    session.end()


def converse():
    if phase == "fill":
        version = stub.Capabilities(p4.CapabilitiesRequest(), timeout=TIMEOUT).p4runtime_api_version
        assert version == "1.4.0", version
        session = arbitrate()
        configure()
        fill()
        change()
        refuse()
        session.end()
    elif phase == "hear":
        hear()
    else:
        look()


try:
    converse()
except BaseException:
    traceback.print_exc()
    ending = 1
else:
    print("done")
    ending = 0
# The library's threads may hold what the interpreter wants to clear away at its ordinary end.
sys.stdout.flush()
sys.stderr.flush()
os._exit(ending)
