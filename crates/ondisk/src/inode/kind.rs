//! What an inode is: in modes and in directory entries.

/// What an inode is, with the codes of directory entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FileType {
    /// Regular file.
    Regular = 1,
    /// Directory.
    Directory = 2,
    /// Character device.
    CharDevice = 3,
    /// Block device.
    BlockDevice = 4,
    /// Named pipe.
    Fifo = 5,
    /// Socket.
    Socket = 6,
    /// Symbolic link.
    Symlink = 7,
}

impl FileType {
    /// From the code in a directory entry.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => return None,
        })
    }

    /// The code in a directory entry.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// From the type bits of a mode.
    #[must_use]
    pub fn from_mode(mode: u16) -> Option<Self> {
        Some(match mode & 0xF000 {
            0x1000 => Self::Fifo,
            0x2000 => Self::CharDevice,
            0x4000 => Self::Directory,
            0x6000 => Self::BlockDevice,
            0x8000 => Self::Regular,
            0xA000 => Self::Symlink,
            0xC000 => Self::Socket,
            _ => return None,
        })
    }

    /// The type bits of a mode.
    #[must_use]
    pub fn mode_bits(self) -> u16 {
        match self {
            Self::Fifo => 0x1000,
            Self::CharDevice => 0x2000,
            Self::Directory => 0x4000,
            Self::BlockDevice => 0x6000,
            Self::Regular => 0x8000,
            Self::Symlink => 0xA000,
            Self::Socket => 0xC000,
        }
    }
}
