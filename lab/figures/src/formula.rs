//! Formulas of figures: a few operations on values of a result file.
//!
//! A formula is `A OP B`, or `A OP B OP C` and so on, evaluated from left to right. An operand is a
//! number, `x` for the value of the link's target, or a path to another value of the file, such as
//! `/limit_ns`. OP is `/`, `*` or `-`. An empty formula is the value itself.

/// Result of a formula; `value_at` returns the value at a path. `None` if the formula is invalid or
/// an operand has no value.
pub(crate) fn evaluate(
    formula: &str,
    x: f64,
    value_at: impl Fn(&str) -> Option<f64>,
) -> Option<f64> {
    if formula.is_empty() {
        return Some(x);
    }
    let operand = |text: &str| match text {
        "x" => Some(x),
        path if path.starts_with('/') => value_at(path),
        number => number.parse().ok(),
    };
    let words: Vec<&str> = formula.split_whitespace().collect();
    let (first, operations) = words.split_first()?;
    if operations.is_empty() {
        return None;
    }
    operations.chunks(2).try_fold(operand(first)?, |left, operation| {
        let &[operator, right] = operation else { return None };
        let right = operand(right)?;
        match operator {
            "/" => Some(left / right),
            "*" => Some(left * right),
            "-" => Some(left - right),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_carried_out_from_left_to_right() {
        let value_at = |path: &str| (path == "/limit").then_some(4.0);
        let of = |formula| evaluate(formula, 8.0, value_at);
        assert_eq!(of(""), Some(8.0));
        assert_eq!(of("1000 / x"), Some(125.0));
        assert_eq!(of("x / /limit"), Some(2.0));
        assert_eq!(of("x * 2"), Some(16.0));
        assert_eq!(of("x - /limit"), Some(4.0));
        assert_eq!(of("x - /limit / 2 * 100"), Some(200.0));
        for wrong in ["x", "x /", "x / 1 /", "x ^ 2", "x / /absent", "y * 1"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
