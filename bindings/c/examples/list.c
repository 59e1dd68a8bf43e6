/* Lists a volume, or copies a file of it to standard output.
 *
 *   cc list.c $(pkg-config --cflags --libs extol) -o list
 *   ./list disk.img            the names of all files, with their sizes
 *   ./list disk.img /etc/motd  the contents of one
 *
 * A volume that was not closed is shown as it will be after recovery, and is not changed. */

#include <extol.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, extol_last_error());
    return 1;
}

static int show(struct extol_fs *fs, const char *path)
{
    char buffer[65536];
    struct extol_file *file = extol_file_open(fs, path, EXTOL_RDONLY, 0);
    uint64_t at = 0;
    ssize_t n;

    if (!file)
        return failed(path);
    while ((n = extol_pread(file, buffer, sizeof buffer, at)) > 0) {
        fwrite(buffer, 1, (size_t)n, stdout);
        at += (uint64_t)n;
    }
    extol_file_close(file);
    return n < 0 ? failed(path) : 0;
}

static int list(struct extol_fs *fs, const char *path)
{
    struct extol_dir *dir = extol_opendir(fs, *path ? path : "/");
    struct extol_dirent entry;
    struct extol_stat attr;
    int more, rc = 0;

    if (!dir)
        return failed(path);
    while ((more = extol_readdirplus(dir, &entry, &attr)) != 0) {
        size_t len;
        char *below;

        if (more < 0) {
            /* One inode cannot be read, or the rest of the directory. */
            rc = failed(path);
            continue;
        }
        len = strlen(path) + strlen(entry.name) + 2;
        below = malloc(len);
        if (!below) {
            rc = 1;
            break;
        }
        snprintf(below, len, "%s/%s", path, entry.name);
        printf("%06o %12llu %s\n", attr.mode, (unsigned long long)attr.size, below);
        if (S_ISDIR(entry.kind) && list(fs, below))
            rc = 1;
        free(below);
    }
    extol_closedir(dir);
    return rc;
}

int main(int argc, char **argv)
{
    struct extol_fs *fs;
    int rc;

    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: list IMAGE [FILE]\n");
        return 2;
    }
    fs = extol_open(argv[1], "ro");
    if (!fs)
        return failed(argv[1]);
    rc = argc == 3 ? show(fs, argv[2]) : list(fs, "");
    if (extol_close(fs) < 0)
        return failed(argv[1]);
    return rc;
}
