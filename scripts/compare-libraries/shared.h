/* What the programs in C share: the three jobs. Each program walks a volume by its own library and
 * tells what it finds.
 *
 * PROGRAM list|hash IMAGE, PROGRAM extract IMAGE DIRECTORY. Prints how many files and directories
 * there are, the bytes of files, and a digest that does not depend on the order. */

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { PIECE = 1 << 20, LONGEST = 4096 };

static const char *job, *target;
static uint64_t all, all_bytes, digest;
static char piece[PIECE];

static void fail(const char *what)
{
    fprintf(stderr, "%s failed\n", what);
    exit(1);
}

/* Reads the next bytes of an open file into `piece`; `at` are those that were read before. */
typedef size_t (*read_piece)(void *file, uint64_t at);

/* Takes a file or directory. `file` is open if needs_contents() says so. */
static void take(const char *path, uint32_t mode, uint64_t size, int64_t mtime, void *file,
                 read_piece read)
{
    uint32_t crc = (uint32_t)crc32(0, (const Bytef *)path, (uInt)strlen(path));
    char below[2 * LONGEST];
    int out = -1;

    all++;
    if (*job == 'l') {
        uint32_t perm = mode & 07777;

        crc = (uint32_t)crc32(crc, (const Bytef *)&perm, sizeof perm);
        crc = (uint32_t)crc32(crc, (const Bytef *)&size, sizeof size);
        crc = (uint32_t)crc32(crc, (const Bytef *)&mtime, sizeof mtime);
    } else if (*job == 'e') {
        snprintf(below, sizeof below, "%s%s", target, path);
        if (S_ISDIR(mode) && mkdir(below, 0777) < 0)
            fail("mkdir");
        if (!S_ISDIR(mode) && (out = open(below, O_WRONLY | O_CREAT | O_EXCL, 0666)) < 0)
            fail("creat");
    }
    if (file) {
        for (uint64_t at = 0; at < size;) {
            size_t n = read(file, at);

            if (!n)
                fail("read");
            if (out < 0)
                crc = (uint32_t)crc32(crc, (const Bytef *)piece, (uInt)n);
            else if (write(out, piece, n) != (ssize_t)n)
                fail("write");
            at += n;
        }
        if (out >= 0)
            close(out);
    }
    if (!S_ISDIR(mode))
        all_bytes += size;
    digest += crc;
}

static int needs_contents(uint32_t mode)
{
    return *job != 'l' && S_ISREG(mode);
}

static void take_arguments(int argc, char **argv)
{
    if (argc < 3 || (*argv[1] == 'e') != (argc == 4))
        fail("list IMAGE, hash IMAGE, or extract IMAGE DIRECTORY:");
    job = argv[1];
    target = argv[3];
}

static void show_result(void)
{
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", all, all_bytes, digest);
}
