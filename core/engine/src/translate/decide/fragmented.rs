//! Fragments of datagrams: each goes the way of its datagram's first fragment.

use super::{Decided, Decision, Recorder, Step};
use crate::fragments::Fragment;
use crate::packet::Verdict;
use crate::parse::Kind;
use crate::translate::plan::Act;
use natgate_wire::Ipv4;

impl<R: Recorder> Decision<'_, R> {
    /// Does [`Decision::by_fragment`], unless the packet came through that already, on its way to
    /// the rules.
    #[inline]
    pub(super) fn by_first(
        &mut self,
        translate: impl FnOnce(&mut Self) -> Decided<Verdict>,
    ) -> Decided<Verdict> {
        let by_port = self.engine.rules_of(self.headers.realm).by_port();
        if self.headers.fragment && (by_port || self.engine.has_twice()) {
            return translate(self);
        }
        self.by_fragment(translate)
    }

    /// Decides about a packet that is no fragment, or a first one; other fragments get the rewrite
    /// of the first.
    #[inline]
    pub(super) fn by_fragment(
        &mut self,
        translate: impl FnOnce(&mut Self) -> Decided<Verdict>,
    ) -> Decided<Verdict> {
        if !self.headers.fragment {
            return translate(self);
        }
        let packet = Ipv4::new_checked(self.bytes).expect("a parsed packet stays one");
        let fragment = Fragment::of(self.from, &packet).expect("it is a fragment");
        let fragment = fragment.in_realm(self.headers.realm);
        let first = self.headers.kind != Kind::LaterFragment;
        self.note(Step::Fragment { first });
        if !first {
            //= rfc1812#section-5.2.6-reassembly
            self.plan.act = Act::Later(fragment);
            return Ok(Verdict::Held);
        }
        self.plan.first = Some(fragment);
        self.engine.fragments.try_first(&fragment)?;
        translate(self)
    }
}
