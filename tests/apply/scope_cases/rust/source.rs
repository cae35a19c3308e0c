use std::fmt;

const TABLE: &[i32] = &[
    1,
    2,
];

pub struct Point<T> {
    x: T,
}

impl<T> Point<T> {
    #[inline]
    pub fn new(x: T) -> Self {
        Self { x }
    }
}

impl fmt::Display for Point<i32> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "}}{}", self.x)
    }
}

#[cfg(unix)]
fn width() -> u32 {
    1
}

#[cfg(windows)]
fn width() -> u32 {
    2
}

trait Shape {
    fn area(&self) -> f64 {
        let helper = |x: f64| {
            x * 2.0
        };
        helper(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works() {
        fn nested() {
            assert!(true);
        }
    }
}

macro_rules! twice {
    ($x:expr) => {
        $x + $x
    };
}
