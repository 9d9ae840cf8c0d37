// The core library of P4-16, as far as it is supported.

error {
    NoError,                // nothing is wrong
    PacketTooShort,         // the packet ends before the header does
    NoMatch,                // no case of a select
    StackOutOfBounds,
    HeaderTooShort,
    ParserTimeout,          // the parser took too many steps
    ParserInvalidArgument
}

// The packet as it came in, and how far it has been read.
extern packet_in {
    void extract<T>(out T header_value);
    T lookahead<T>();
    void advance(in bit<32> bits);
    bit<32> length();       // in bytes
}

// The packet as it goes out: headers in the order in which they are emitted.
extern packet_out {
    void emit<T>(in T value);
}

// Ends parsing with an error unless the condition holds.
extern void verify(in bool condition, in error reason);

action NoAction() {}

match_kind {
    exact,
    ternary,
    lpm
}
