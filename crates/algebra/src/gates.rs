//! The functions that gates are made of, in f64, without overflow at either end.

/// `ln(1 + e^x)`.
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `1 / (1 + e^-x)`.
pub fn sigmoid(x: f64) -> f64 {
    let e = (-x.abs()).exp();
    if x >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) }
}

/// `ln sigmoid(x)`.
pub fn log_sigmoid(x: f64) -> f64 {
    -softplus(-x)
}

/// `x · sigmoid(x)`.
pub fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_middle() {
        assert_eq!((softplus(1e4), softplus(-1e4)), (1e4, 0.0));
        assert_eq!((sigmoid(1e4), sigmoid(-1e4), sigmoid(0.0)), (1.0, 0.0, 0.5));
        assert_eq!((log_sigmoid(-1e4), log_sigmoid(1e4)), (-1e4, 0.0));
        // ln 2 and a sum of two sigmoids: one rounding each.
        assert!((softplus(0.0) - std::f64::consts::LN_2).abs() < 1e-16);
        assert!((sigmoid(0.7) + sigmoid(-0.7) - 1.0).abs() < 3e-16);
        assert_eq!((silu(2.0), silu(-1e4)), (2.0 * sigmoid(2.0), 0.0));
    }
}
