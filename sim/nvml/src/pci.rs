//! PCI addresses in the two forms that NVML writes, `00000000:00:07.0` and `0000:00:07.0`.

/// Domain, bus and device; NVIDIA's function is always 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PciAddress {
    pub(crate) domain: u32,
    pub(crate) bus: u32,
    pub(crate) device: u32,
}

impl PciAddress {
    /// Reads either form, in either case.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(':');
        let mut hex = || u32::from_str_radix(parts.next()?, 16).ok();
        let (domain, bus) = (hex()?, hex()?);
        let (device, _function) = parts.next()?.split_once('.')?;
        let device = u32::from_str_radix(device, 16).ok()?;
        Some(Self { domain, bus, device })
    }

    /// With four digits of domain.
    pub(crate) fn legacy(self) -> String {
        format!("{:04X}:{:02X}:{:02X}.0", self.domain, self.bus, self.device)
    }

    /// With eight digits of domain.
    pub(crate) fn long(self) -> String {
        format!("{:08X}:{:02X}:{:02X}.0", self.domain, self.bus, self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_the_same_address() {
        let long = PciAddress::parse("00000000:0A:07.0").unwrap();
        assert_eq!(PciAddress::parse("0000:0a:07.0"), Some(long));
        assert_eq!(long.long(), "00000000:0A:07.0");
        assert_eq!(long.legacy(), "0000:0A:07.0");
        assert_eq!(PciAddress::parse("07.0"), None);
    }
}
