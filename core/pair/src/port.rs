//! The life of one external port while a partner may have copied its mapping.
//!
//! The owner's table can be newer than the copy. So a port whose mapping was sent rests after the
//! end of the mapping, until the partner has confirmed the removal or its process has ended. Then
//! the hold-down begins. A copy never ends by itself.

/// State of one external port of one protocol at one node, for subscribers of type `S`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Port<S> {
    /// The owner may assign the port.
    #[default]
    Free,
    /// A mapping of this subscriber has the port.
    Used {
        /// The subscriber.
        subscriber: S,
        /// True if the partner may have a copy of the mapping.
        is_shared: bool,
    },
    /// The mapping has ended here. The partner may still forward its packets.
    Resting,
    /// No node forwards packets of the port. Remote hosts may remember it.
    Held,
}

/// What the owner tells the partner about a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Record<S> {
    /// This subscriber has the port.
    Mapped(S),
    /// The port's mapping has ended, and the port is in hold-down.
    Ended,
}

impl<S: Copy + PartialEq> Port<S> {
    /// The subscriber that packets to the port go to.
    pub fn subscriber(&self) -> Option<S> {
        match *self {
            Self::Used { subscriber, .. } => Some(subscriber),
            _ => None,
        }
    }

    /// Gives a free port to a subscriber. Returns `false` if the port is not free. Only the owner
    /// of the slice calls this, if [`Ownership::may_assign`](crate::Ownership::may_assign).
    pub fn assign(&mut self, subscriber: S) -> bool {
        let is_free = matches!(self, Self::Free);
        if is_free {
            *self = Self::Used { subscriber, is_shared: false };
        }
        is_free
    }

    /// The record to send to the partner. The partner may have a copy from now on.
    pub fn send(&mut self) -> Option<Record<S>> {
        match self {
            Self::Free => None,
            Self::Used { subscriber, is_shared } => {
                *is_shared = true;
                Some(Record::Mapped(*subscriber))
            }
            Self::Resting | Self::Held => Some(Record::Ended),
        }
    }

    /// Ends the mapping. Returns true if the hold-down begins at once.
    pub fn end(&mut self) -> bool {
        let Self::Used { is_shared, .. } = *self else { return false };
        *self = if is_shared { Self::Resting } else { Self::Held };
        !is_shared
    }

    /// The partner has confirmed the present record. Returns true if the hold-down begins.
    pub fn confirm(&mut self) -> bool {
        let rests = matches!(self, Self::Resting);
        if rests {
            *self = Self::Held;
        }
        rests
    }

    /// The partner's process has ended, and with it all its copies. Returns true if the hold-down
    /// begins.
    pub fn lose_copies(&mut self) -> bool {
        if let Self::Used { is_shared, .. } = self {
            *is_shared = false;
        }
        self.confirm()
    }

    /// The partner applies a record of the owner. Returns true if the hold-down begins.
    pub fn copy(&mut self, record: Record<S>) -> bool {
        match record {
            // After a planned move the other node has the mapping too.
            Record::Mapped(subscriber) => {
                *self = Self::Used { subscriber, is_shared: true };
                false
            }
            Record::Ended => {
                *self = Self::Held;
                true
            }
        }
    }

    /// The hold-down is over.
    pub fn release(&mut self) {
        if matches!(self, Self::Held) {
            *self = Self::Free;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_was_sent_rests_until_the_partner_confirms() {
        let mut port = Port::default();
        assert!(port.assign('x') && !port.assign('y'));
        assert_eq!(port.send(), Some(Record::Mapped('x')));
        assert!(!port.end());
        assert_eq!((port, port.subscriber()), (Port::Resting, None));
        port.release();
        assert!(!port.assign('y'), "the partner may still forward");
        assert_eq!(port.send(), Some(Record::Ended));
        assert!(port.confirm());
        assert!(!port.assign('y'), "remote hosts may remember");
        port.release();
        assert!(port.assign('y'));
    }

    #[test]
    fn a_port_that_was_never_sent_goes_to_hold_down_at_once() {
        let mut port = Port::default();
        assert!(port.assign('x') && port.end());
        assert_eq!(port, Port::Held);
        assert!(!port.confirm() && !port.end());
    }

    #[test]
    fn the_end_of_the_partner_ends_a_rest() {
        let mut port = Port::Used { subscriber: 'x', is_shared: true };
        assert!(!port.lose_copies());
        assert_eq!(port, Port::Used { subscriber: 'x', is_shared: false });
        port.send();
        port.end();
        assert!(port.lose_copies());
        assert_eq!(port, Port::Held);
    }

    #[test]
    fn a_copy_is_shared_because_its_owner_has_the_mapping() {
        let mut port = Port::default();
        assert!(!port.copy(Record::Mapped('x')));
        assert!(!port.end());
        assert_eq!(port, Port::Resting);
        assert!(port.copy(Record::<char>::Ended));
        assert_eq!(port, Port::Held);
    }
}
