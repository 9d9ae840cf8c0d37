//! Figures of the thesis behind S1 (Plotnikov, Skoltech 2015) for several experiments.

/// Target of the thesis for packets, millions a second.
pub(crate) const TARGET_MPPS: f64 = 5.5;
/// Target of the thesis for new sessions, millions a second.
pub(crate) const TARGET_NEW_SESSIONS: f64 = 3.0;
/// Result of the final design as a share of the target: "260 % more than target level".
pub(crate) const RESULT_SHARE: f64 = 3.6;
/// Result of the final design as a share of the target, if the thesis meant 260 % of it.
pub(crate) const RESULT_SHARE_IF_OF: f64 = 2.6;

/// Packet rate of the final design, millions a second, taken literally.
pub(crate) fn result_mpps() -> f64 {
    RESULT_SHARE * TARGET_MPPS
}

/// Rate of the final design for a table: the literal reading, then the other one.
pub(crate) fn result_text() -> String {
    let other = RESULT_SHARE_IF_OF * TARGET_MPPS;
    format!("{:.1} (\"260 % more\"; {other:.1} if 260 % of the target was meant)", result_mpps())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_is_the_target_and_260_percent_more() {
        assert!((result_mpps() - 19.8).abs() < 1e-9);
        assert_eq!(result_text(), "19.8 (\"260 % more\"; 14.3 if 260 % of the target was meant)");
    }
}
