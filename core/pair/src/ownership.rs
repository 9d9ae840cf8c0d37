//! Who owns a slice: the rules of a node.
//!
//! A node changes its mind for three reasons: a view of its partner, evidence that the partner's
//! process has ended, a command of the operator. It never does so because time has passed. The
//! caller sends views, carries out decisions (`may_assign`, `source`, `destination`) and reports
//! that a hold-down is over or that a copy is complete.
//!
//! What always holds: a node assigns ports only as the owner. A node gives a slice up by saying
//! "yours" to one boot number, and takes one only from a partner that said so, or after that
//! partner's process has ended.

use alloc::vec::Vec;

/// One of the two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Node {
    /// The first node by name.
    A,
    /// The second node by name.
    B,
}

impl Node {
    /// The other node.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Number of a start of a node: greater than the number of each earlier start. 0: no start.
pub type Boot = u64;

/// Number of an ownership of a slice. It grows with each change of owner. 0: never owned.
pub type Epoch = u64;

/// A node's part in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// This node has started and does not know the owner.
    Unknown,
    /// This node is the owner.
    Owner {
        /// Remote hosts may remember ports that the former owner has assigned; none is assigned.
        rests: bool,
        /// The slice goes to the partner when the copy is complete; no port is assigned.
        drains: bool,
    },
    /// This node was the owner and has given the slice to this start of the partner.
    Yielding {
        /// Boot number of the partner.
        to: Boot,
    },
    /// The partner is the owner; this node has the copy.
    Partner {
        /// Boot number of the owner.
        of: Boot,
    },
}

/// What a node says about a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Holding {
    /// It has no state of the slice.
    Nothing,
    /// It is the owner.
    Mine,
    /// It has given the slice to the receiver.
    Yours,
    /// It has the copy.
    Theirs,
}

/// A node's statement about one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// The epoch that the statement is about.
    pub epoch: Epoch,
    /// The statement.
    pub holding: Holding,
}

/// The message between nodes: everything that a node says, at one time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct View {
    /// Boot number of the sender.
    pub from: Boot,
    /// The greatest boot number of the receiver that the sender has seen.
    pub to: Boot,
    /// How often an operator has told the sender's process to forget the receiver.
    pub round: u32,
    /// The round of the receiver that the sender has heard. A view of before `forget` says nothing:
    /// it may be of a process whose start the receiver never heard of.
    pub answers: u32,
    /// A sum over what the slices are. Nodes with other slices share nothing.
    pub shape: u32,
    /// Number of the sender's workers. Each of them sends a stream of each slice, and reads each.
    pub workers: u8,
    /// Statements about all slices, in the order of the configuration.
    pub claims: Vec<Claim>,
}

/// Identity of a stream of records: of one slice, between two starts, in one epoch. Records of
/// every other stream are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream {
    /// Boot number of the owner.
    pub from: Boot,
    /// Boot number of the partner.
    pub to: Boot,
    /// Epoch of the slice.
    pub epoch: Epoch,
}

/// Reason why a view has no effect on slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The sender's process has ended, as far as this node knows; or the view came late.
    OldSender,
    /// The view answers another start of this node, or was sent before this node was told to forget
    /// its partner.
    OtherReceiver,
    /// The two configurations have different slices.
    Slices,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Slice {
    home: Node,
    epoch: Epoch,
    role: Role,
}

/// A node's knowledge about all slices.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ownership {
    node: Node,
    boot: Boot,
    /// The greatest boot number of the partner that this node has seen.
    partner: Boot,
    /// Processes of the partner with this boot number or a smaller one have ended.
    ended: Boot,
    /// Commands to forget the partner, and the number of those that the partner was given.
    round: u32,
    partner_round: u32,
    shape: u32,
    /// Numbers of workers: of this node, and of the partner's process `partner`.
    workers: u8,
    partner_workers: u8,
    slices: Vec<Slice>,
}

impl Ownership {
    /// A node starts. It owns nothing. `homes` has the home of each slice. `boot` is not 0.
    pub fn start(node: Node, boot: Boot, homes: &[Node]) -> Self {
        let slice = |&home: &Node| Slice { home, epoch: 0, role: Role::Unknown };
        Self {
            node,
            boot,
            partner: 0,
            ended: 0,
            round: 0,
            partner_round: 0,
            shape: 0,
            workers: 1,
            partner_workers: 1,
            slices: homes.iter().map(slice).collect(),
        }
    }

    /// Sets the sum over what the slices are: the nodes' names, the slices' addresses and homes.
    pub fn with_shape(self, shape: u32) -> Self {
        Self { shape, ..self }
    }

    /// Sets the number of this node's workers; otherwise it is 1.
    pub fn with_workers(self, workers: u8) -> Self {
        Self { workers, ..self }
    }

    /// The message to the partner.
    pub fn view(&self) -> View {
        let claim = |slice: &Slice| {
            let holding = match slice.role {
                Role::Unknown => Holding::Nothing,
                Role::Owner { .. } => Holding::Mine,
                Role::Yielding { .. } => Holding::Yours,
                Role::Partner { .. } => Holding::Theirs,
            };
            Claim { epoch: slice.epoch, holding }
        };
        View {
            from: self.boot,
            to: self.partner,
            round: self.round,
            answers: self.partner_round,
            shape: self.shape,
            workers: self.workers,
            claims: self.slices.iter().map(claim).collect(),
        }
    }

    /// Hears the partner. A view may be old, repeated, or out of order.
    ///
    /// # Errors
    /// [`Refusal`]: the view says nothing about slices that counts. The boot number of the sender
    /// counts nevertheless, if it is new.
    pub fn receive(&mut self, view: &View) -> Result<(), Refusal> {
        if (view.claims.len(), view.shape) != (self.slices.len(), self.shape) {
            return Err(Refusal::Slices);
        }
        if view.from <= self.ended || view.from < self.partner {
            return Err(Refusal::OldSender);
        }
        let is_new = view.from > self.partner;
        self.partner = view.from;
        self.partner_workers = view.workers;
        self.partner_round = if is_new { view.round } else { self.partner_round.max(view.round) };
        // A node runs one process at a time.
        self.partner_ended(view.from - 1);
        if (view.to, view.answers) != (self.boot, self.round) {
            return Err(Refusal::OtherReceiver);
        }
        for (slice, claim) in self.slices.iter_mut().zip(&view.claims) {
            slice.hear(*claim, view.from, self.node);
        }
        Ok(())
    }

    /// The partner's process with this boot number has ended, and so have all earlier ones. The
    /// guardian says so, which waits for the end of the process.
    pub fn partner_ended(&mut self, boot: Boot) {
        if boot <= self.ended {
            return;
        }
        self.ended = boot;
        for slice in &mut self.slices {
            slice.partner_ended(self.ended);
        }
    }

    /// The operator says that the partner has ended and does not run anywhere. It also settles
    /// slices about which this node knows nothing.
    pub fn forget_partner(&mut self) {
        self.partner_ended(self.partner);
        self.round = self.round.saturating_add(1);
        for slice in &mut self.slices {
            if slice.role == Role::Unknown {
                slice.take();
            }
        }
    }

    /// Starts to give a slice to the partner. Returns `false` if this node is not the owner, or
    /// rests after a take-over: the partner would not know for how long.
    pub fn drain(&mut self, slice: usize) -> bool {
        let role = &mut self.slices[slice].role;
        let is_ready = matches!(role, Role::Owner { rests: false, .. });
        if is_ready {
            *role = Role::Owner { rests: false, drains: true };
        }
        is_ready
    }

    /// Keeps a slice that has not been given away yet.
    pub fn keep(&mut self, slice: usize) {
        if let Role::Owner { drains, .. } = &mut self.slices[slice].role {
            *drains = false;
        }
    }

    /// The partner has confirmed the record of every port of a time at which the slice drained
    /// already, or a later record, held ports included. A slice that drains is now given away. What
    /// may have changed since: mappings have ended.
    pub fn copy_complete(&mut self, slice: usize, stream: Stream) {
        let is_current = self.destination(slice) == Some(stream);
        let slice = &mut self.slices[slice];
        if is_current && let Role::Owner { drains: true, .. } = slice.role {
            slice.epoch = slice.epoch.saturating_add(1);
            slice.role = Role::Yielding { to: stream.to };
        }
    }

    /// The hold-down of a whole slice is over, which began when this node took it in this epoch.
    pub fn end_rest(&mut self, slice: usize, epoch: Epoch) {
        let slice = &mut self.slices[slice];
        if let Role::Owner { rests, .. } = &mut slice.role
            && slice.epoch == epoch
        {
            *rests = false;
        }
    }

    /// True if this node may assign free ports of a slice.
    pub fn may_assign(&self, slice: usize) -> bool {
        self.slices[slice].role == Role::Owner { rests: false, drains: false }
    }

    /// True if this node is the owner of a slice.
    pub fn owns(&self, slice: usize) -> bool {
        matches!(self.slices[slice].role, Role::Owner { .. })
    }

    /// True if a slice goes to the partner as soon as the copy is complete.
    pub fn drains(&self, slice: usize) -> bool {
        matches!(self.slices[slice].role, Role::Owner { drains: true, .. })
    }

    /// The stream of records that this node copies. Records of other streams are refused.
    pub fn source(&self, slice: usize) -> Option<Stream> {
        match self.slices[slice].role {
            Role::Partner { of } if of > self.ended => {
                Some(Stream { from: of, to: self.boot, epoch: self.slices[slice].epoch })
            }
            _ => None,
        }
    }

    /// The stream of records that this node sends, if it is the owner and knows a partner.
    pub fn destination(&self, slice: usize) -> Option<Stream> {
        let is_there = self.owns(slice) && self.partner > self.ended;
        is_there.then(|| Stream {
            from: self.boot,
            to: self.partner,
            epoch: self.slices[slice].epoch,
        })
    }

    /// Epoch of a slice, as far as this node knows.
    pub fn epoch(&self, slice: usize) -> Epoch {
        self.slices[slice].epoch
    }

    /// This node's part in a slice.
    pub fn role(&self, slice: usize) -> Role {
        self.slices[slice].role
    }

    /// Number of workers of the partner's process that streams are sent to and received from.
    pub fn partner_workers(&self) -> u8 {
        self.partner_workers
    }

    /// Boot number of this node.
    pub fn boot(&self) -> Boot {
        self.boot
    }

    /// The greatest boot number of the partner whose end is known.
    pub fn ended(&self) -> Boot {
        self.ended
    }

    /// The node that this is.
    pub fn node(&self) -> Node {
        self.node
    }
}

impl Slice {
    /// Becomes the owner after the end of the former one, or of a slice without any owner.
    fn take(&mut self) {
        self.epoch = self.epoch.saturating_add(1);
        self.role = Role::Owner { rests: true, drains: false };
    }

    fn partner_ended(&mut self, ended: Boot) {
        match &mut self.role {
            // After "yours" the partner may have assigned ports.
            Role::Partner { of: boot } | Role::Yielding { to: boot } if *boot <= ended => {
                self.take();
            }
            // Nobody is there to take the slice.
            Role::Owner { drains, .. } => *drains = false,
            _ => {}
        }
    }

    /// Hears a claim of the partner's process `from`.
    fn hear(&mut self, claim: Claim, from: Boot, own: Node) {
        let Claim { epoch, holding } = claim;
        let is_offered =
            self.role == Role::Partner { of: from } && epoch == self.epoch.saturating_add(1);
        let is_newer = match self.role {
            Role::Unknown => true,
            Role::Partner { .. } | Role::Yielding { .. } => epoch >= self.epoch,
            // Two owners: only a false word of an operator leads here.
            Role::Owner { .. } => (epoch, Node::B) > (self.epoch, own),
        };
        match holding {
            Holding::Mine if is_newer => {
                self.epoch = epoch;
                self.role = Role::Partner { of: from };
            }
            Holding::Yours if is_offered => {
                self.epoch = epoch;
                self.role = Role::Owner { rests: false, drains: false };
            }
            Holding::Nothing if self.role == Role::Unknown && self.home == own => self.take(),
            _ => {}
        }
    }
}
