/* libext2fs, the library of e2fsprogs. */

#include "shared.h"

#include <ext2fs/ext2fs.h>

static ext2_filsys fs;

static size_t next(void *file, uint64_t at)
{
    unsigned int n;

    (void)at;
    return ext2fs_file_read(file, piece, PIECE, &n) ? 0 : n;
}

static int entry(ext2_ino_t dir, int kind, struct ext2_dir_entry *found, int offset, int size,
                 char *block, void *path)
{
    char below[LONGEST];
    struct ext2_inode_large inode;
    ext2_file_t file = NULL;
    int64_t mtime;

    (void)dir, (void)offset, (void)size, (void)block;
    if (kind != DIRENT_OTHER_FILE)
        return 0;
    snprintf(below, sizeof below, "%s/%.*s", (char *)path, ext2fs_dirent_name_len(found),
             found->name);
    if (ext2fs_read_inode_full(fs, found->inode, (struct ext2_inode *)&inode, sizeof inode))
        fail(below);
    mtime = (int32_t)inode.i_mtime + ((int64_t)(inode.i_mtime_extra & 3) << 32);
    if (needs_contents(inode.i_mode) &&
        ext2fs_file_open2(fs, found->inode, (struct ext2_inode *)&inode, 0, &file))
        fail(below);
    take(below, inode.i_mode, EXT2_I_SIZE(&inode), mtime, file, next);
    if (file)
        ext2fs_file_close(file);
    if (S_ISDIR(inode.i_mode) && ext2fs_dir_iterate2(fs, found->inode, 0, NULL, entry, below))
        fail(below);
    return 0;
}

int main(int argc, char **argv)
{
    char top[] = "";

    take_arguments(argc, argv);
    if (ext2fs_open(argv[2], EXT2_FLAG_64BITS, 0, 0, unix_io_manager, &fs))
        fail(argv[2]);
    if (ext2fs_dir_iterate2(fs, EXT2_ROOT_INO, 0, NULL, entry, top))
        fail("walk");
    ext2fs_close(fs);
    show_result();
    return 0;
}
