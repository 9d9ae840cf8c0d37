//! DNS (RFC 1035): addresses in answers, and the names of inverse questions (RFC 2694).
//!
//! The asking side gets the addresses by which it reaches the hosts: those of static mappings and
//! of twice NAT. Nothing here is assigned on demand. So times to live stay (RFC 2694 section 4.2),
//! and a message never makes a mapping.
//!
//! An inverse question is translated if its address has exactly one counterpart, and its answer is
//! translated back. The flow remembers the question. Answers to other questions keep their names.
//!
//! Signed answers pass as they are: an edit would make a validating resolver refuse them. An edited
//! answer loses the bit AD, because nobody has validated what it says now.

mod edit;
mod message;

use crate::message::{Context, Protocol, Step};
use crate::reason::Reason;
use crate::saved::saved;
use core::net::Ipv4Addr;
use edit::Draft;
use message::{HEADER, Message};

/// Longest message that is read, bytes.
const LONGEST: usize = 8000;

/// Time for which the answer to an inverse question is awaited, seconds.
pub(crate) const PATIENCE: u32 = 10;

/// Translated questions of a flow whose answers are awaited.
const QUESTIONS: usize = 4;

/// An inverse question that was translated.
#[derive(Clone, Copy, Debug, Default)]
struct Question {
    id: u16,
    /// Time until which the answer is awaited, seconds; 0: there is no question.
    until: u32,
    asked: u32,
    sent: u32,
}

/// A flow of messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dns {
    questions: [Question; QUESTIONS],
}

saved!(Question { id, until, asked, sent });
saved!(Dns { questions });

impl Protocol for Dns {
    fn read(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Step {
        if context.is_datagram {
            if let Err(reason) = self.take(bytes, 0, context) {
                context.refuse(reason);
            }
            return Step::Pass(bytes.len());
        }
        // RFC 1035 section 4.2.2.
        let Some(Ok(len)) = bytes.get(..2).map(<[u8; 2]>::try_from) else { return Step::More };
        let end = 2 + usize::from(u16::from_be_bytes(len));
        if end < 2 + HEADER {
            return Step::Leave(Reason::NotProtocol);
        }
        if end > LONGEST {
            return Step::Leave(Reason::TooLong);
        }
        let Some(message) = bytes.get(2..end) else { return Step::More };
        match self.take(message, 2, context) {
            Ok(()) => Step::Pass(end),
            Err(Reason::NotProtocol | Reason::Truncated) => Step::Leave(Reason::NotProtocol),
            Err(reason) => {
                context.refuse(reason);
                Step::Pass(end)
            }
        }
    }
}

impl Dns {
    /// True if no answer is awaited.
    pub(crate) fn is_idle(&self) -> bool {
        self.questions.iter().all(|question| question.until == 0)
    }

    /// Reads a message that has `before` bytes of its length before it. The error is the reason why
    /// it passes as it is.
    fn take(
        &mut self,
        bytes: &[u8],
        before: usize,
        context: &mut Context<'_>,
    ) -> Result<(), Reason> {
        if bytes.len() > LONGEST {
            return Err(Reason::TooLong);
        }
        let Some(message) = Message::read(bytes)? else { return Ok(()) };
        let mut draft = Draft::default();
        if message.is_answer {
            self.answer(&message, &mut draft, context);
        } else {
            self.ask(&message, &mut draft, context)?;
        }
        if draft.is_empty() {
            return Ok(());
        }
        if message.is_signed {
            return Err(Reason::Signed);
        }
        if message.is_answer && message.is_validated {
            draft.clear_validated(bytes);
        }
        draft.write(&message, before, context)
    }

    /// An answer: its addresses, and the name of the question if that was translated.
    fn answer(&mut self, message: &Message<'_>, draft: &mut Draft, context: &Context<'_>) {
        let is_of = |question: &&mut Question| question.until != 0 && question.id == message.id;
        if let Some(question) = self.questions.iter_mut().find(is_of) {
            draft.rename(message, question.sent.into(), question.asked.into());
            *question = Question::default();
        }
        for at in message.addresses() {
            let Some(Ok(old)) = message.bytes.get(at..at + 4).map(<[u8; 4]>::try_from) else {
                continue;
            };
            if let Some(new) = context.counterpart(old.into()) {
                draft.put(at, 4, &new.address.octets());
            }
        }
    }

    /// A question: an inverse one gets the address that the other side knows.
    fn ask(
        &mut self,
        message: &Message<'_>,
        draft: &mut Draft,
        context: &mut Context<'_>,
    ) -> Result<(), Reason> {
        let Some(asked) = message.inverse_question() else { return Ok(()) };
        let Some(new) = context.counterpart(asked).filter(|new| new.is_one_to_one) else {
            return Ok(());
        };
        if message.wants_signatures || message.is_signed {
            return Err(Reason::Signed);
        }
        let (id, now) = (message.id, context.now);
        let is_free = |question: &&mut Question| {
            question.until <= now || (question.id, question.asked) == (id, asked.to_bits())
        };
        let Some(free) = self.questions.iter_mut().find(is_free) else {
            return Err(Reason::Flood);
        };
        let sent: Ipv4Addr = new.address;
        let (asked_bits, sent_bits) = (asked.to_bits(), sent.to_bits());
        *free = Question { id, until: now + PATIENCE, asked: asked_bits, sent: sent_bits };
        draft.rename(message, asked, sent);
        Ok(())
    }
}
