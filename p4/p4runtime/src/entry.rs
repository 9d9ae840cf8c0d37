//! Conversion of entities in a Write to requests to the program, and of refusals to statuses.

use crate::proto::{
    Action, ActionType, CounterEntry, DELETE, Entity, FieldMatch, INSERT, Index, MODIFY, MatchType,
    MeterEntry, Of, TableAction, TableEntry, Update,
};
use crate::value::number;
use natgate_p4::{
    ActionInfo, ArrayInfo, FieldInfo, Info, Key, MachineError, MatchKind, Rates, Request, Row,
    TableInfo,
};
use tonic::Status;

fn invalid<T>(what: impl Into<String>) -> Result<T, Status> {
    Err(Status::invalid_argument(what))
}

/// Request of an update.
pub(crate) fn request(info: &Info, update: &Update) -> Result<Request, Status> {
    if ![INSERT, MODIFY, DELETE].contains(&update.kind) {
        return invalid("an update is an INSERT, a MODIFY or a DELETE");
    }
    match entity(update.entity.as_ref())? {
        Of::Table(entry) if entry.is_default_action => default_action(info, update.kind, entry),
        Of::Table(entry) => table_entry(info, update.kind, entry),
        Of::Counter(entry) => counter(info, update.kind, entry),
        Of::Meter(entry) => meter(info, update.kind, entry),
        other => Err(unsupported(other)),
    }
}

/// Content of an entity.
pub(crate) fn entity(entity: Option<&Entity>) -> Result<&Of, Status> {
    let of = entity.and_then(|entity| entity.of.as_ref());
    of.ok_or_else(|| Status::invalid_argument("there is no entity, or one of an unknown kind"))
}

/// Refusal of entities that the architecture lacks, or that are not supported.
pub(crate) fn unsupported(of: &Of) -> Status {
    let what = match of {
        Of::Extern(_) => "extern entries",
        Of::ActionProfileMember(_) | Of::ActionProfileGroup(_) => "action profiles",
        Of::DirectMeter(_) | Of::DirectCounter(_) => "direct meters and counters",
        Of::PacketReplicationEngine(_) => "multicast groups and clone sessions",
        Of::ValueSet(_) => "value sets",
        Of::Register(_) => "registers",
        Of::Table(_) | Of::Counter(_) | Of::Meter(_) | Of::Digest(_) => "these",
    };
    let there = "tables, counters, meters and digests";
    Status::unimplemented(format!("{what} are not supported; use {there}"))
}

/// Table with this number.
pub(crate) fn table(info: &Info, id: u32) -> Result<&TableInfo, Status> {
    let found = info.tables.iter().find(|table| table.preamble.id == id);
    found.ok_or_else(|| Status::not_found(format!("the program has no table {id:#010x}")))
}

/// Array with this number; `what` is its kind.
pub(crate) fn array<'i>(
    arrays: &'i [ArrayInfo],
    id: u32,
    what: &str,
) -> Result<&'i ArrayInfo, Status> {
    let found = arrays.iter().find(|array| array.preamble.id == id);
    found.ok_or_else(|| Status::not_found(format!("the program has no {what} {id:#010x}")))
}

fn table_entry(info: &Info, kind: i32, entry: &TableEntry) -> Result<Request, Status> {
    plain(entry)?;
    let table = table(info, entry.table_id)?;
    let keys = keys(table, &entry.matches)?;
    let priority = priority(table, entry.priority)?;
    let name = table.preamble.name.clone();
    if kind == DELETE {
        return Ok(Request::Delete { table: name, keys, priority });
    }
    let Some(action) = &entry.action else { return invalid("the entry has no action") };
    let (action, args) = chosen(info, table, action)?;
    let row = Row { table: name, keys, priority, action: action.preamble.name.clone(), args };
    Ok(match kind {
        INSERT => Request::Insert(row),
        _ => Request::Modify(row),
    })
}

/// Refuses parts of an entry that would have no effect.
fn plain(entry: &TableEntry) -> Result<(), Status> {
    let refused = |what: &str| Err(Status::unimplemented(format!("{what}; leave it out")));
    if entry.meter_config.is_some() || entry.counter_data.is_some() {
        return invalid("the table has no direct meters or counters; leave them out");
    }
    match entry {
        TableEntry { idle_timeout_ns: 1.., .. } => {
            invalid("the table does not tell of silence; leave idle_timeout_ns out")
        }
        TableEntry { controller_metadata: 1.., .. } => refused("controller_metadata is not kept"),
        _ if !entry.metadata.is_empty() => refused("metadata is not kept"),
        _ => Ok(()),
    }
}

fn default_action(info: &Info, kind: i32, entry: &TableEntry) -> Result<Request, Status> {
    plain(entry)?;
    let table = table(info, entry.table_id)?;
    if kind != MODIFY || !entry.matches.is_empty() || entry.priority != 0 {
        return invalid("a default action is changed by MODIFY, without match and priority");
    }
    let action = match &entry.action {
        None => None,
        Some(action) => {
            let (action, args) = chosen(info, table, action)?;
            Some((action.preamble.name.clone(), args))
        }
    };
    Ok(Request::SetDefault { table: table.preamble.name.clone(), action })
}

/// Priority of an entry; only entries of tables with ternary keys have one.
pub(crate) fn priority(table: &TableInfo, priority: i32) -> Result<u32, Status> {
    let is_ternary = table.fields.iter().any(|field| field.kind == MatchKind::Ternary);
    let name = &table.preamble.name;
    match (is_ternary, u32::try_from(priority)) {
        (true, Ok(priority @ 1..)) | (false, Ok(priority @ 0)) => Ok(priority),
        (true, _) => invalid(format!("entries of `{name}` have a priority above 0")),
        (false, _) => invalid(format!("entries of `{name}` have no priority: no key is ternary")),
    }
}

/// Keys of an entry. Keys that are not exact may be left out: then any value matches.
pub(crate) fn keys(table: &TableInfo, matches: &[FieldMatch]) -> Result<Vec<Key>, Status> {
    for (place, one) in matches.iter().enumerate() {
        let id = one.field_id;
        if table.fields.iter().all(|field| field.id != id) {
            return invalid(format!("`{}` has no field {id}", table.preamble.name));
        }
        if matches[..place].iter().any(|other| other.field_id == id) {
            return invalid(format!("the field {id} is there twice"));
        }
    }
    let given = |field: &FieldInfo| {
        let found = matches.iter().find(|one| one.field_id == field.id);
        match (field.kind, found.map(|found| found.of.as_ref())) {
            (MatchKind::Lpm, None) => Ok(Key::Prefix(0, 0)),
            (MatchKind::Ternary, None) => Ok(Key::Masked(0, 0)),
            (_, Some(Some(asked))) => key(field, asked),
            _ => invalid(format!("a value of `{}` is missing", field.name)),
        }
    };
    table.fields.iter().map(given).collect()
}

fn key(field: &FieldInfo, asked: &MatchType) -> Result<Key, Status> {
    let name = &field.name;
    match (field.kind, asked) {
        (MatchKind::Exact, MatchType::Exact(exact)) => {
            number(&exact.value, field.bits).map(Key::Exact)
        }
        (MatchKind::Lpm, MatchType::Lpm(lpm)) => {
            let value = number(&lpm.value, field.bits)?;
            let length = u32::try_from(lpm.prefix_len).unwrap_or(0);
            if !(1..=field.bits).contains(&length) {
                let bits = field.bits;
                return invalid(format!(
                    "a prefix of `{name}` is from 1 to {bits} bits long; leave it out for any value"
                ));
            }
            match value & !(u128::MAX << (field.bits - length)) {
                0 => Ok(Key::Prefix(value, length)),
                _ => invalid(format!("the value of `{name}` has bits behind its prefix")),
            }
        }
        (MatchKind::Ternary, MatchType::Ternary(ternary)) => {
            let (value, mask) =
                (number(&ternary.value, field.bits)?, number(&ternary.mask, field.bits)?);
            match (mask, value & !mask) {
                (0, _) => invalid(format!("the mask of `{name}` is zero; leave the field out")),
                (_, 0) => Ok(Key::Masked(value, mask)),
                _ => invalid(format!("the value of `{name}` has bits where its mask has none")),
            }
        }
        (kind, _) => {
            let kind = format!("{kind:?}").to_lowercase();
            invalid(format!("the field `{name}` is matched by another kind: {kind}"))
        }
    }
}

/// Requested action, which the table must list, and its arguments.
fn chosen<'i>(
    info: &'i Info,
    table: &TableInfo,
    action: &TableAction,
) -> Result<(&'i ActionInfo, Vec<u128>), Status> {
    let Some(ActionType::Action(Action { action_id, params })) = &action.of else {
        return Err(Status::unimplemented("action profiles are not supported; name an action"));
    };
    let id = *action_id;
    let found = info.actions.iter().find(|action| action.preamble.id == id);
    let Some(found) = found else {
        return Err(Status::not_found(format!("the program has no action {id:#010x}")));
    };
    let name = &found.preamble.name;
    if table.actions.iter().all(|action| action.id != id) {
        return invalid(format!("`{}` does not list the action `{name}`", table.preamble.name));
    }
    if params.len() != found.params.len() {
        return invalid(format!("`{name}` takes {} arguments", found.params.len()));
    }
    let args = found.params.iter().map(|param| {
        match params.iter().find(|given| given.param_id == param.id) {
            Some(given) => number(&given.value, param.bits),
            None => invalid(format!("the argument `{}` of `{name}` is missing", param.name)),
        }
    });
    Ok((found, args.collect::<Result<_, _>>()?))
}

/// Index of a counter or meter; `None` for all of them.
pub(crate) fn place(array: &ArrayInfo, index: Option<&Index>) -> Result<Option<u32>, Status> {
    let Some(index) = index else { return Ok(None) };
    match u32::try_from(index.index) {
        Ok(index) if index < array.size => Ok(Some(index)),
        _ => Err(Status::out_of_range(format!(
            "`{}` has the places 0 to {}",
            array.preamble.name,
            array.size - 1
        ))),
    }
}

/// Index of the one element in a Write, which must be a MODIFY.
fn one_place(array: &ArrayInfo, kind: i32, index: Option<&Index>) -> Result<u32, Status> {
    match (kind, place(array, index)?) {
        (MODIFY, Some(index)) => Ok(index),
        (MODIFY, None) => invalid("say which by an index"),
        _ => invalid("counters and meters are there already; MODIFY them"),
    }
}

/// A number, which must not be negative.
fn positive(value: i64) -> Result<u64, Status> {
    u64::try_from(value).or_else(|_| invalid("counts, rates and bursts are not negative"))
}

fn counter(info: &Info, kind: i32, entry: &CounterEntry) -> Result<Request, Status> {
    let array = array(&info.counters, entry.counter_id, "counter")?;
    let index = one_place(array, kind, entry.index.as_ref())?;
    let Some(data) = entry.data else { return invalid("the counter has no data") };
    let value = (positive(data.packet_count)?, positive(data.byte_count)?);
    Ok(Request::SetCounter { counter: array.preamble.name.clone(), index, value })
}

fn meter(info: &Info, kind: i32, entry: &MeterEntry) -> Result<Request, Status> {
    let array = array(&info.meters, entry.meter_id, "meter")?;
    let index = one_place(array, kind, entry.index.as_ref())?;
    if entry.counter_data.is_some() {
        return invalid("meters count nothing; leave counter_data out");
    }
    let rates = match entry.config {
        None => None,
        Some(config) => Some(Rates {
            committed: positive(config.cir)?,
            committed_burst: positive(config.cburst)?,
            peak: positive(config.pir)?,
            peak_burst: positive(config.pburst)?,
        }),
    };
    Ok(Request::SetMeter { meter: array.preamble.name.clone(), index, rates })
}

/// Status for a refusal of the program.
pub(crate) fn status(error: &MachineError) -> Status {
    let message = error.to_string();
    match error {
        MachineError::Name { .. } | MachineError::Missing(_) => Status::not_found(message),
        MachineError::Values(_) => Status::invalid_argument(message),
        MachineError::Full(_) => Status::resource_exhausted(message),
        MachineError::Const(_) => Status::permission_denied(message),
        MachineError::Exists(_) => Status::already_exists(message),
        MachineError::Gone => Status::unavailable(message),
    }
}
