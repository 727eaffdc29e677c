//! The archive format of an initramfs: cpio, "newc".
//!
//! Kernel documentation: Documentation/driver-api/early-userspace/buffer-format.rst.

/// An archive under construction. A directory must be added before its entries.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

impl Archive {
    pub(crate) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, (0, 0), &[]);
    }

    /// Adds an executable regular file.
    pub(crate) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, (0, 0), content);
    }

    /// Adds a character device `(major, minor)`.
    pub(crate) fn device(&mut self, path: &str, number: (u32, u32)) {
        self.entry(path, DEVICE, number, &[]);
    }

    /// Returns the finished archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let size =
            u32::try_from(content.len()).expect("a file of an initramfs should be below 4 GiB");
        let name = u32::try_from(path.len() + 1).expect("a path should be short");
        let links = 1 + u32::from(mode == DIRECTORY);
        let (major, minor) = device;
        // The fields are inode, mode, uid, gid, links, mtime, size, device with the file, device that the file is,
        // length of the name with its NUL, checksum (unused).
        let fields = [self.entries, mode, 0, 0, links, 0, size, 0, 0, major, minor, name, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests;
