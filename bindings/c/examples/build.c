/* Builds an image from a directory or an archive, and checks it.
 *
 *   cc build.c $(pkg-config --cflags --libs extol) -o build
 *   ./build new.img DIRECTORY
 */

#include <extol.h>
#include <stdio.h>

static void found(void *data, bool is_error, const char *line)
{
    (void)data;
    fprintf(stderr, "%s: %s\n", is_error ? "error" : "note", line);
}

static int progress(void *data, uint64_t done, uint64_t total)
{
    (void)data;
    fprintf(stderr, "\r%3.0f %%", total ? 100.0 * (double)done / (double)total : 100.0);
    return 0;
}

int main(int argc, char **argv)
{
    struct extol_mkfs_options options = {
        .struct_size = sizeof options,
        .label = "built",
        .features = "fast_commit",
        .free = 16 << 20,
    };

    if (argc != 3) {
        fprintf(stderr, "usage: build IMAGE SOURCE\n");
        return 2;
    }
    if (extol_build(argv[1], argv[2], &options, progress, NULL) < 0) {
        fprintf(stderr, "\n%s\n", extol_last_error());
        return 1;
    }
    fputc('\n', stderr);
    return extol_check(argv[1], found, NULL) != 0;
}
