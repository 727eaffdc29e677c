//! Numbers in arguments.

/// Parses a number in C notation: `0x10`, `020` or `16`.
pub(crate) fn number<T: TryFrom<u64>>(argument: &str) -> Result<T, String> {
    let (digits, radix) = match argument.strip_prefix("0x").or_else(|| argument.strip_prefix("0X"))
    {
        Some(digits) => (digits, 16),
        None if argument.len() > 1 && argument.starts_with('0') => (&argument[1..], 8),
        None => (argument, 10),
    };
    let number = u64::from_str_radix(digits, radix).map_err(|error| error.to_string())?;
    T::try_from(number).map_err(|_| "number too large".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_use_c_notation() {
        for text in ["16", "0x10", "0X10", "020"] {
            assert_eq!(number(text), Ok(16_u8));
        }
        assert_eq!(number("0"), Ok(0_u8));
        for text in ["256", "", "0x", "-1", "ten"] {
            assert!(number::<u8>(text).is_err(), "{text}");
        }
        assert_eq!(number("256"), Ok(256_u32));
    }
}
