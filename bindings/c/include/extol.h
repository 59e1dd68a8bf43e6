/* libextol: ext4 in user space.
 *
 * A call that fails returns -1, or NULL, and sets errno; extol_last_error() has a line that says
 * why. Numbers of errno are those of Linux. Paths begin at the root of the volume, with or without
 * a slash; no path leads out of it. All calls but extol_close() may be made by many threads at once
 * on one volume, and those on a file too; a directory stream belongs to one thread at a time.
 *
 * Made by cbindgen from bindings/c/src: do not edit. */

#ifndef EXTOL_H
#define EXTOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EXTOL_VERSION "0.1.0"


// Bytes of the longest name, with a zero behind it.
#define EXTOL_NAME_SIZE 256

// Open for reading.
#define EXTOL_RDONLY 0

// Open for writing.
#define EXTOL_WRONLY 1

// Open for both.
#define EXTOL_RDWR 2

// Make the file if it is not there.
#define EXTOL_CREAT 64

// With EXTOL_CREAT: fail if it is there.
#define EXTOL_EXCL 128

// Empty it.
#define EXTOL_TRUNC 512

// Fail if the last name is a symbolic link.
#define EXTOL_NOFOLLOW 131072

// In `nsec`: the present moment.
#define EXTOL_UTIME_NOW ((1 << 30) - 1)

// In `nsec`: leave this time alone.
#define EXTOL_UTIME_OMIT ((1 << 30) - 2)

// For extol_rename(): fail if the new name is there.
#define EXTOL_RENAME_NOREPLACE 1

// For extol_rename(): exchange the two names.
#define EXTOL_RENAME_EXCHANGE 2

// For extol_setxattr(): fail if the attribute is there.
#define EXTOL_XATTR_CREATE 1

// For extol_setxattr(): fail if it is not.
#define EXTOL_XATTR_REPLACE 2

// An open directory.
struct extol_dir;

// An open file.
struct extol_file;

// An open volume.
struct extol_fs;

// An entry of a directory.
struct extol_dirent {
    // Inode number.
    uint32_t ino;
    // What it is, as in `mode` of extol_stat (S_IFREG and so on, without permission bits); 0 if
    // the name is gone by now.
    uint32_t kind;
    // The name, which ends with a zero.
    char name[EXTOL_NAME_SIZE];
};

// A point in time, seconds since 1970.
struct extol_time {
    // Seconds; negative before 1970.
    int64_t sec;
    // Nanoseconds, 0 to 999999999; for extol_utimens() EXTOL_UTIME_NOW or EXTOL_UTIME_OMIT as
    // well.
    uint32_t nsec;
};

// Attributes of a file.
struct extol_stat {
    // Inode number.
    uint32_t ino;
    // Its generation, another one each time the number is used.
    uint32_t generation;
    // What it is (S_IFREG and so on), and permission bits, as Linux has them in st_mode.
    uint32_t mode;
    // Names.
    uint32_t nlink;
    // Owner.
    uint32_t uid;
    // Group.
    uint32_t gid;
    // Bytes.
    uint64_t size;
    // Space used, in units of 512 bytes.
    uint64_t blocks;
    // Of a device file: the major number.
    uint32_t rdev_major;
    // Of a device file: the minor number.
    uint32_t rdev_minor;
    // Flags, as of chattr(1).
    uint32_t flags;
    // Project.
    uint32_t project;
    // Bytes of a block, in which reads and writes are best.
    uint32_t blksize;
    // Last access.
    struct extol_time atime;
    // Last change of the contents.
    struct extol_time mtime;
    // Last change of the inode.
    struct extol_time ctime;
    // Creation; 0 if the inode is too small to have it.
    struct extol_time crtime;
};

// How a volume is made; all zeros is what mkfs does without options. Texts may be NULL.
struct extol_mkfs_options {
    // Bytes of this struct, sizeof(struct extol_mkfs_options): a later library knows by it which
    // fields there are.
    size_t struct_size;
    // Bytes of the volume. 0: of extol_mkfs() the size of what is there, of extol_build() what the
    // files need.
    uint64_t size;
    // The label, as of -L.
    const char *label;
    // Features, as of -O: names, with ^ for one that is taken away, between commas.
    const char *features;
    // As of -E.
    const char *extended;
    // A UUID, as of -U.
    const char *uuid;
    // Bytes of a block, as of -b; 0 lets the size decide.
    uint32_t block_size;
    // Inodes, as of -N; 0 lets the size decide.
    uint32_t inodes;
    // Of extol_build() with a size of 0: bytes that are free afterwards.
    uint64_t free;
    // Of extol_build(): the time of the making, in seconds since 1970, as SOURCE_DATE_EPOCH; 0:
    // that of the newest file.
    uint64_t time;
};

// A device that the program itself is. Each callback returns 0, or a number of errno, and may be
// called by many threads at once. Offsets and lengths are in bytes; no request goes beyond `size`.
struct extol_device {
    // Passed to the callbacks. Of two volumes with the same `data` none may be written while the
    // other is open; if it is NULL, that is the program's duty.
    void *data;
    // Bytes of the device.
    uint64_t size;
    // Fills `len` bytes at `buffer` from `offset`.
    int32_t (*read)(void *data, void *buffer, size_t len, uint64_t offset);
    // Writes `len` bytes at `offset`. NULL: the device is read-only.
    int32_t (*write)(void *data, const void *buffer, size_t len, uint64_t offset);
    // Makes durable what was written before. NULL: what is written is durable.
    int32_t (*flush)(void *data);
};

// Sizes of a volume, as of statvfs(3).
struct extol_statfs {
    // Bytes of a block.
    uint32_t block_size;
    // Longest name.
    uint32_t name_max;
    // Blocks for data.
    uint64_t blocks;
    // Free blocks.
    uint64_t blocks_free;
    // Free blocks for ordinary users.
    uint64_t blocks_available;
    // Inodes.
    uint64_t inodes;
    // Free inodes.
    uint64_t inodes_free;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, such as "0.1.0".
const char *extol_version(void);

// Opens a directory. Close it with extol_closedir().
struct extol_dir *extol_opendir(const struct extol_fs *fs, const char *path);

// The next entry, without "." and "..". Returns 1, or 0 behind the last.
int extol_readdir(struct extol_dir *dir, struct extol_dirent *out);

// The next entry whose name is still there, with the attributes of what it names: of a symbolic
// link itself. That is faster than extol_readdir() and an extol_lstat() of each name. Returns as
// extol_readdir(). A failure is that of one inode, or ends the list: the next call goes on behind
// its name, or returns 0.
int extol_readdirplus(struct extol_dir *dir, struct extol_dirent *out, struct extol_stat *attr);

// Closes a directory; NULL is fine.
int extol_closedir(struct extol_dir *dir);

// Why the last call of this thread that failed did so, in one line; "" before the first. The text
// stays until the next call that fails, and its address as long as the thread.
const char *extol_last_error(void);

// Opens a file, or a directory for reading (for extol_fsync()). `flags` are EXTOL_RDONLY and so
// on; a file that is made gets the permission bits of `mode` and belongs to root. Close it with
// extol_file_close().
struct extol_file *extol_file_open(const struct extol_fs *fs,
                                   const char *path,
                                   int32_t flags,
                                   uint32_t mode);

// Makes a file without a name in a directory, open for both; it is deleted when it is closed,
// unless extol_file_link() gives it a name.
struct extol_file *extol_tmpfile(const struct extol_fs *fs, const char *dir, uint32_t mode);

// Gives an open file another name.
int32_t extol_file_link(const struct extol_file *file, const char *path);

// Closes a file; NULL is fine. What was written is durable only after extol_fsync().
int32_t extol_file_close(struct extol_file *file);

// Reads up to `len` bytes from `offset`; fewer only at the end of the file, where it is 0.
ptrdiff_t extol_pread(const struct extol_file *file, void *buffer, size_t len, uint64_t offset);

// Writes `len` bytes at `offset`; fewer only if the volume gets full.
ptrdiff_t extol_pwrite(const struct extol_file *file,
                       const void *buffer,
                       size_t len,
                       uint64_t offset);

// Writes `len` bytes at the end of the file, wherever that is when they are written: no other
// write comes between. Returns how many, as extol_pwrite(). `at`, if it is not NULL, gets the
// offset.
ptrdiff_t extol_append(const struct extol_file *file, const void *buffer, size_t len, uint64_t *at);

// Sets the size: cuts the end off, or adds a hole.
int32_t extol_ftruncate(const struct extol_file *file, uint64_t size);

// Reserves blocks for a range; the file gets longer where the range does.
int32_t extol_fallocate(const struct extol_file *file, uint64_t offset, uint64_t len);

// Attributes of an open file.
int32_t extol_fstat(const struct extol_file *file, struct extol_stat *out);

// Makes a file durable: contents, attributes, and the names that lead to it.
int32_t extol_fsync(const struct extol_file *file);

// Makes the contents durable, with those attributes that reading them needs.
int32_t extol_fdatasync(const struct extol_file *file);

// Makes an empty volume in a file or on a block device, whose contents are lost. A file that is
// not there is made, if `options` have a size.
int extol_mkfs(const char *path, const struct extol_mkfs_options *options);

// Builds a volume with the files of `source`: a directory, an archive (tar, also compressed) or
// the layout of a container image. What `path` held is lost; a file there that has no size given
// is as long as the volume afterwards. `progress`, if it is not NULL, is called now and then with
// bytes or files that are done, and all of them; when it returns something else than 0, the work
// stops, with ECANCELED.
int extol_build(const char *path,
                const char *source,
                const struct extol_mkfs_options *options,
                int (*progress)(void *data, uint64_t done, uint64_t total),
                void *data);

// Replays the journal of a volume on it, and finishes what was being deleted. Returns 1 if it was
// needed, and 0 if nothing was to do. `options` as of extol_open().
int extol_replay(const char *name, const char *options);

// Compares a volume with itself, as e2fsck -fn does; nothing is changed. A journal with work in it
// is replayed in memory first. Returns 0 if the volume is clean and 1 if it is damaged; `found`,
// if it is not NULL, gets a line for each finding, which ends with a zero and stays only during
// the call.
int extol_check(const char *name,
                void (*found)(void *data, bool is_error, const char *line),
                void *data);

// Attributes of what a path leads to.
int32_t extol_stat(const struct extol_fs *fs, const char *path, struct extol_stat *out);

// Attributes of what a path names: of a symbolic link itself.
int32_t extol_lstat(const struct extol_fs *fs, const char *path, struct extol_stat *out);

// Makes a directory, which belongs to root.
int32_t extol_mkdir(const struct extol_fs *fs, const char *path, uint32_t mode);

// Makes a device file, a named pipe, a socket or an empty file, as `mode` says (S_IFCHR and so on,
// with permission bits). `major` and `minor` count for device files.
int32_t extol_mknod(const struct extol_fs *fs,
                    const char *path,
                    uint32_t mode,
                    uint32_t major,
                    uint32_t minor);

// Removes an empty directory.
int32_t extol_rmdir(const struct extol_fs *fs, const char *path);

// Removes the name of a file or symbolic link.
int32_t extol_unlink(const struct extol_fs *fs, const char *path);

// Removes whatever a path names, a directory with all that is in it. Links are removed, not
// followed.
int32_t extol_remove_all(const struct extol_fs *fs, const char *path);

// Renames; `flags` is 0 or one of those above.
int32_t extol_rename(const struct extol_fs *fs, const char *from, const char *to, uint32_t flags);

// Gives a file a second name. A symbolic link gets it itself.
int32_t extol_link(const struct extol_fs *fs, const char *original, const char *path);

// Makes a symbolic link at `path` to `target`.
int32_t extol_symlink(const struct extol_fs *fs, const char *target, const char *path);

// The target of a symbolic link, without a zero behind it. Returns its length; with a `len` of 0
// nothing else. ERANGE if the buffer is too short.
ptrdiff_t extol_readlink(const struct extol_fs *fs, const char *path, void *buffer, size_t len);

// Sets the permission bits.
int32_t extol_chmod(const struct extol_fs *fs, const char *path, uint32_t mode);

// Sets owner and group; (uint32_t)-1 leaves one alone.
int32_t extol_chown(const struct extol_fs *fs, const char *path, uint32_t uid, uint32_t gid);

// The same, for a symbolic link itself.
int32_t extol_lchown(const struct extol_fs *fs, const char *path, uint32_t uid, uint32_t gid);

// Sets the time of last access and that of the last change of the contents.
int32_t extol_utimens(const struct extol_fs *fs,
                      const char *path,
                      struct extol_time atime,
                      struct extol_time mtime);

// Sets the size of a file: cuts the end off, or adds a hole.
int32_t extol_truncate(const struct extol_fs *fs, const char *path, uint64_t size);

// The value of an extended attribute, by its full name ("user.x"). Returns its length; with a
// `len` of 0 nothing else. ERANGE if the buffer is too short, ENODATA if there is no such
// attribute.
ptrdiff_t extol_getxattr(const struct extol_fs *fs,
                         const char *path,
                         const char *name,
                         void *buffer,
                         size_t len);

// Sets an extended attribute; `flags` is 0 or one of those above.
int32_t extol_setxattr(const struct extol_fs *fs,
                       const char *path,
                       const char *name,
                       const void *value,
                       size_t len,
                       int32_t flags);

// The full names of all extended attributes, each with a zero behind it. Returns the length of
// all; with a `len` of 0 nothing else. ERANGE if the buffer is too short.
ptrdiff_t extol_listxattr(const struct extol_fs *fs, const char *path, void *buffer, size_t len);

// Removes an extended attribute.
int32_t extol_removexattr(const struct extol_fs *fs, const char *path, const char *name);

// Opens a volume by the name that the commands take: a disk image, a block device, a partition of
// one ("disk.img:2"), a tag ("LABEL=data"), an address ("nbd://host/export"). `options` are those
// of mount -o, such as "ro"; NULL for none. A journal with work in it is replayed; with "ro" that
// is done in memory, if the device is not to be written. Close it with extol_close().
struct extol_fs *extol_open(const char *name, const char *options);

// Opens a volume on a device that the program itself is: extol_open() for `device`, which is
// copied. Its callbacks are called by many threads at once, and with `data` as their first
// argument; they and `data` have to stay until the volume and all its files and directories are
// closed.
struct extol_fs *extol_open_device(const struct extol_device *device, const char *options);

// Writes everything and closes a volume, also when it fails; NULL is fine. Files and directories
// that are open have to be closed as well, before or afterwards: other calls with them fail.
int32_t extol_close(struct extol_fs *fs);

// Makes everything durable.
int32_t extol_sync(const struct extol_fs *fs);

// Sizes of the volume.
int32_t extol_statfs(const struct extol_fs *fs, struct extol_statfs *out);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* EXTOL_H */
