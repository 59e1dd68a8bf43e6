/* libextol. */

#include "shared.h"

#include <extol.h>

static size_t next(void *file, uint64_t at)
{
    ptrdiff_t n = extol_pread(file, piece, PIECE, at);

    return n < 0 ? 0 : (size_t)n;
}

static void walk(struct extol_fs *fs, const char *path)
{
    struct extol_dir *dir = extol_opendir(fs, *path ? path : "/");
    struct extol_dirent entry;
    struct extol_stat attr;
    int more;

    if (!dir)
        fail(path);
    while ((more = extol_readdirplus(dir, &entry, &attr)) > 0) {
        char below[LONGEST];
        struct extol_file *file = NULL;

        snprintf(below, sizeof below, "%s/%s", path, entry.name);
        if (needs_contents(attr.mode) && !(file = extol_file_open(fs, below, EXTOL_RDONLY, 0)))
            fail(below);
        take(below, attr.mode, attr.size, attr.mtime.sec, file, next);
        if (file)
            extol_file_close(file);
        if (S_ISDIR(attr.mode))
            walk(fs, below);
    }
    if (more < 0)
        fail(path);
    extol_closedir(dir);
}

int main(int argc, char **argv)
{
    struct extol_fs *fs;

    take_arguments(argc, argv);
    fs = extol_open(argv[2], "ro");
    if (!fs)
        fail(argv[2]);
    walk(fs, "");
    if (extol_close(fs) < 0)
        fail("close");
    show_result();
    return 0;
}
