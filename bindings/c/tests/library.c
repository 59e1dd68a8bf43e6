/* Everything that the library offers, and what it refuses. Run by scripts/libextol.sh --test, plainly,
 * with address and undefined-behaviour sanitisers, and under valgrind. */

#include <errno.h>
#include <extol.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s: errno %d, %s\n", __FILE__, __LINE__, #what, errno,         \
                    extol_last_error());                                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* A call that has to fail, with this errno and with this word in its line. */
#define FAILS(what, number, word)                                                                  \
    do {                                                                                           \
        errno = 0;                                                                                 \
        CHECK((what) && errno == (number) && strstr(extol_last_error(), word));                    \
    } while (0)

struct memory {
    pthread_mutex_t lock;
    unsigned char *bytes;
    int flushes;
    int broken;
};

static int memory_read(void *data, void *buffer, size_t len, uint64_t offset)
{
    struct memory *memory = data;

    pthread_mutex_lock(&memory->lock);
    memcpy(buffer, memory->bytes + offset, len);
    pthread_mutex_unlock(&memory->lock);
    return 0;
}

static int memory_write(void *data, const void *buffer, size_t len, uint64_t offset)
{
    struct memory *memory = data;
    int rc;

    pthread_mutex_lock(&memory->lock);
    rc = memory->broken;
    if (!rc)
        memcpy(memory->bytes + offset, buffer, len);
    pthread_mutex_unlock(&memory->lock);
    return rc;
}

static int memory_flush(void *data)
{
    struct memory *memory = data;

    pthread_mutex_lock(&memory->lock);
    memory->flushes++;
    pthread_mutex_unlock(&memory->lock);
    return 0;
}

static void write_all(struct extol_fs *fs, const char *path, const void *data, size_t len)
{
    struct extol_file *file =
        extol_file_open(fs, path, EXTOL_RDWR | EXTOL_CREAT | EXTOL_TRUNC, 0644);

    CHECK(file);
    CHECK(extol_pwrite(file, data, len, 0) == (ssize_t)len);
    CHECK(extol_fsync(file) == 0);
    CHECK(extol_file_close(file) == 0);
}

static void files(struct extol_fs *fs)
{
    struct extol_stat attr;
    struct extol_file *file;
    char buffer[64];
    uint64_t at;

    write_all(fs, "/a", "hello, world", 12);
    CHECK(extol_stat(fs, "a", &attr) == 0);
    CHECK(attr.blksize == 1024 || attr.blksize == 4096);
    CHECK(attr.size == 12 && attr.mode == (S_IFREG | 0644) && attr.nlink == 1);
    CHECK((file = extol_file_open(fs, "/a", EXTOL_RDWR, 0)));
    CHECK(extol_pread(file, buffer, sizeof buffer, 7) == 5);
    CHECK(memcmp(buffer, "world", 5) == 0);
    CHECK(extol_pread(file, buffer, sizeof buffer, 100) == 0);
    CHECK(extol_pread(file, NULL, 0, 0) == 0);
    FAILS(extol_pread(file, NULL, 1, 0) == -1, EINVAL, "NULL");
    CHECK(extol_pwrite(file, "x", 1, 1 << 20) == 1);
    CHECK(extol_fstat(file, &attr) == 0 && attr.size == (1 << 20) + 1);
    CHECK(extol_ftruncate(file, 5) == 0);
    CHECK(extol_fallocate(file, 0, 1 << 20) == 0);
    CHECK(extol_fstat(file, &attr) == 0 && attr.size == 1 << 20 && attr.blocks >= 2048);
    CHECK(extol_fdatasync(file) == 0);
    CHECK(extol_append(file, "end", 3, &at) == 3 && at == 1 << 20);
    CHECK(extol_append(file, "end", 3, NULL) == 3);
    CHECK(extol_fstat(file, &attr) == 0 && attr.size == (1 << 20) + 6);
    CHECK(extol_file_close(file) == 0);
    CHECK(extol_truncate(fs, "/a", 5) == 0);

    CHECK((file = extol_file_open(fs, "/a", EXTOL_RDONLY, 0)));
    FAILS(extol_pwrite(file, "x", 1, 0) == -1, EACCES, "permission");
    FAILS(extol_append(file, "x", 1, NULL) == -1, EACCES, "permission");
    CHECK(extol_file_close(file) == 0);
    FAILS(!extol_file_open(fs, "/a", EXTOL_RDWR | EXTOL_CREAT | EXTOL_EXCL, 0), EEXIST, "exists");
    FAILS(!extol_file_open(fs, "/none", EXTOL_RDONLY, 0), ENOENT, "/none: no such");
    FAILS(!extol_file_open(fs, "/a", 0x40000000, 0), EINVAL, "flags");
    FAILS(!extol_file_open(fs, "/", EXTOL_RDWR, 0), EISDIR, "directory");
    FAILS(!extol_file_open(NULL, "/a", EXTOL_RDONLY, 0), EINVAL, "NULL");
    FAILS(!extol_file_open(fs, NULL, EXTOL_RDONLY, 0), EINVAL, "NULL");

    CHECK((file = extol_tmpfile(fs, "/", 0600)));
    CHECK(extol_pwrite(file, "unnamed", 7, 0) == 7);
    CHECK(extol_file_link(file, "/named") == 0);
    CHECK(extol_file_close(file) == 0);
    CHECK(extol_stat(fs, "/named", &attr) == 0 && attr.size == 7 && attr.mode == (S_IFREG | 0600));
}

static void names(struct extol_fs *fs)
{
    struct extol_time omit = {0, EXTOL_UTIME_OMIT}, when = {-5, 7}, bad = {0, 1000000000};
    struct extol_stat attr, other;
    char buffer[64];

    CHECK(extol_mkdir(fs, "/dir", 0750) == 0);
    FAILS(extol_mkdir(fs, "/dir", 0750) == -1, EEXIST, "exists");
    CHECK(extol_link(fs, "/a", "/dir/b") == 0);
    CHECK(extol_symlink(fs, "dir/b", "/link") == 0);
    CHECK(extol_readlink(fs, "/link", NULL, 0) == 5);
    CHECK(extol_readlink(fs, "/link", buffer, sizeof buffer) == 5);
    CHECK(memcmp(buffer, "dir/b", 5) == 0);
    FAILS(extol_readlink(fs, "/link", buffer, 4) == -1, ERANGE, "small");
    FAILS(extol_readlink(fs, "/a", buffer, 4) == -1, EINVAL, "");
    CHECK(extol_stat(fs, "/link", &attr) == 0 && extol_lstat(fs, "/link", &other) == 0);
    CHECK(S_ISREG(attr.mode) && attr.nlink == 2 && S_ISLNK(other.mode));
    FAILS(!extol_file_open(fs, "/link", EXTOL_RDONLY | EXTOL_NOFOLLOW, 0), ELOOP, "symbolic");

    CHECK(extol_mknod(fs, "/dir/null", S_IFCHR | 0666, 1, 3) == 0);
    CHECK(extol_stat(fs, "/dir/null", &attr) == 0);
    CHECK(S_ISCHR(attr.mode) && attr.rdev_major == 1 && attr.rdev_minor == 3);
    CHECK(extol_mknod(fs, "/dir/pipe", S_IFIFO | 0600, 0, 0) == 0);
    FAILS(extol_mknod(fs, "/dir/x", S_IFDIR | 0600, 0, 0) == -1, EINVAL, "mode");

    CHECK(extol_chmod(fs, "/dir/b", 04711) == 0);
    CHECK(extol_chown(fs, "/dir/b", 1000, (uint32_t)-1) == 0);
    CHECK(extol_lchown(fs, "/link", 7, 8) == 0);
    CHECK(extol_utimens(fs, "/dir/b", omit, when) == 0);
    FAILS(extol_utimens(fs, "/dir/b", omit, bad) == -1, EINVAL, "nanoseconds");
    CHECK(extol_stat(fs, "/a", &attr) == 0);
    CHECK(attr.uid == 1000 && attr.gid == 0 && attr.mtime.sec == -5 && attr.mtime.nsec == 7);
    CHECK(extol_lstat(fs, "/link", &attr) == 0 && attr.uid == 7 && attr.gid == 8);

    CHECK(extol_rename(fs, "/dir/b", "/dir/c", 0) == 0);
    FAILS(extol_rename(fs, "/dir/c", "/a", EXTOL_RENAME_NOREPLACE) == -1, EEXIST,
          "/dir/c, /a: ");
    CHECK(extol_rename(fs, "/link", "/named", EXTOL_RENAME_EXCHANGE) == 0);
    CHECK(extol_lstat(fs, "/named", &attr) == 0 && S_ISLNK(attr.mode));
    FAILS(extol_rmdir(fs, "/dir") == -1, ENOTEMPTY, "empty");
    FAILS(extol_unlink(fs, "/dir") == -1, EISDIR, "directory");
    CHECK(extol_unlink(fs, "/dir/pipe") == 0);
    CHECK(extol_mkdir(fs, "/dir/empty", 0700) == 0 && extol_rmdir(fs, "/dir/empty") == 0);
}

static void attributes(struct extol_fs *fs)
{
    char buffer[64];

    CHECK(extol_setxattr(fs, "/a", "user.one", "1", 1, 0) == 0);
    CHECK(extol_setxattr(fs, "/a", "user.none", NULL, 0, EXTOL_XATTR_CREATE) == 0);
    FAILS(extol_setxattr(fs, "/a", "user.one", NULL, 0, EXTOL_XATTR_CREATE) == -1, EEXIST, "");
    FAILS(extol_setxattr(fs, "/a", "user.x", NULL, 0, EXTOL_XATTR_REPLACE) == -1, ENODATA, "");
    CHECK(extol_getxattr(fs, "/a", "user.one", NULL, 0) == 1);
    CHECK(extol_getxattr(fs, "/a", "user.one", buffer, sizeof buffer) == 1);
    CHECK(buffer[0] == '1');
    FAILS(extol_getxattr(fs, "/a", "user.x", NULL, 0) == -1, ENODATA, "attribute");
    CHECK(extol_listxattr(fs, "/a", buffer, sizeof buffer) == 19);
    FAILS(extol_listxattr(fs, "/a", buffer, 18) == -1, ERANGE, "small");
    CHECK(extol_removexattr(fs, "/a", "user.none") == 0);
    CHECK(extol_listxattr(fs, "/a", NULL, 0) == 9);
}

static void directories(struct extol_fs *fs)
{
    struct extol_dir *dir = extol_opendir(fs, "/dir");
    struct extol_dirent entry;
    struct extol_stat attr;
    int more, seen = 0;

    CHECK(dir);
    while ((more = extol_readdir(dir, &entry)) == 1) {
        if (!strcmp(entry.name, "c"))
            CHECK(S_ISREG(entry.kind) && entry.ino > 10);
        else
            CHECK(!strcmp(entry.name, "null") && S_ISCHR(entry.kind));
        seen++;
    }
    CHECK(more == 0 && seen == 2);
    CHECK(extol_closedir(dir) == 0);
    CHECK((dir = extol_opendir(fs, "/dir")));
    FAILS(extol_readdirplus(dir, &entry, NULL) == -1, EINVAL, "NULL");
    FAILS(extol_readdir(dir, NULL) == -1, EINVAL, "NULL");
    while ((more = extol_readdirplus(dir, &entry, &attr)) == 1) {
        struct extol_stat other;
        char path[300];

        snprintf(path, sizeof path, "/dir/%s", entry.name);
        CHECK(extol_lstat(fs, path, &other) == 0);
        CHECK(entry.ino == attr.ino && entry.kind == (attr.mode & S_IFMT));
        CHECK(attr.ino == other.ino && attr.size == other.size && attr.mode == other.mode);
        CHECK(attr.rdev_minor == other.rdev_minor && attr.mtime.nsec == other.mtime.nsec);
        seen--;
    }
    CHECK(more == 0 && seen == 0);
    CHECK(extol_closedir(dir) == 0);
    FAILS(!extol_opendir(fs, "/a"), ENOTDIR, "directory");
    FAILS(!extol_opendir(fs, "/\n\033\377"), ENOENT, "/\\n\\u{1b}\\xff: ");
    CHECK(extol_remove_all(fs, "/dir") == 0);
    FAILS(!extol_opendir(fs, "/dir"), ENOENT, "no such");
}

struct worker {
    struct extol_fs *fs;
    int nr;
};

static void *work(void *data)
{
    struct worker *me = data;
    char path[32], text[32];

    for (int n = 0; n < 50; n++) {
        snprintf(path, sizeof path, "/shared/%d-%d", me->nr, n);
        snprintf(text, sizeof text, "%d of %d", n, me->nr);
        write_all(me->fs, path, text, strlen(text));
        /* What failed is told to the thread that made the call. */
        snprintf(path, sizeof path, "/shared/none-%d-%d", me->nr, n);
        FAILS(extol_unlink(me->fs, path) == -1, ENOENT, path);
    }
    return NULL;
}

static void threads(struct extol_fs *fs)
{
    struct worker workers[4];
    pthread_t ids[4];
    struct extol_dirent entry;
    struct extol_dir *dir;
    int seen = 0;

    CHECK(extol_mkdir(fs, "/shared", 0755) == 0);
    for (int nr = 0; nr < 4; nr++) {
        workers[nr] = (struct worker){fs, nr};
        CHECK(pthread_create(&ids[nr], NULL, work, &workers[nr]) == 0);
    }
    for (int nr = 0; nr < 4; nr++)
        CHECK(pthread_join(ids[nr], NULL) == 0);
    CHECK((dir = extol_opendir(fs, "/shared")));
    while (extol_readdir(dir, &entry) == 1)
        seen++;
    CHECK(seen == 200 && extol_closedir(dir) == 0);
}

static void on_memory(const char *image)
{
    struct memory memory = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct extol_device device = {
        .data = &memory,
        .read = memory_read,
        .write = memory_write,
        .flush = memory_flush,
    };
    struct extol_file *file;
    struct extol_stat attr;
    struct extol_fs *fs;
    FILE *stream = fopen(image, "rb");

    CHECK(stream && fseek(stream, 0, SEEK_END) == 0);
    device.size = (uint64_t)ftell(stream);
    CHECK((memory.bytes = malloc(device.size)));
    rewind(stream);
    CHECK(fread(memory.bytes, 1, device.size, stream) == device.size);
    fclose(stream);

    CHECK((fs = extol_open_device(&device, NULL)));
    FAILS(!extol_open_device(&device, NULL), EBUSY, "already");
    write_all(fs, "/in-memory", "x", 1);
    CHECK(memory.flushes > 0);
    CHECK(extol_close(fs) == 0);
    CHECK((fs = extol_open_device(&device, "ro")));
    CHECK(extol_stat(fs, "/in-memory", &attr) == 0 && attr.size == 1);
    FAILS(extol_unlink(fs, "/in-memory") == -1, EROFS, "read-only");
    CHECK(extol_close(fs) == 0);

    /* A device that fails is told, and nothing is acknowledged any more. */
    CHECK((fs = extol_open_device(&device, NULL)));
    CHECK((file = extol_file_open(fs, "/lost", EXTOL_RDWR | EXTOL_CREAT, 0644)));
    CHECK(extol_pwrite(file, "lost", 4, 0) == 4);
    pthread_mutex_lock(&memory.lock);
    memory.broken = ENOSPC;
    pthread_mutex_unlock(&memory.lock);
    CHECK(extol_fsync(file) == -1);
    CHECK(extol_close(fs) == -1);
    /* The file outlives its volume, and calls with it fail. */
    CHECK(extol_pwrite(file, "lost", 4, 0) == -1);
    CHECK(extol_file_close(file) == 0);

    device.read = NULL;
    FAILS(!extol_open_device(&device, NULL), EINVAL, "read is NULL");
    free(memory.bytes);
}

static int stop(void *data, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    ++*(int *)data;
    return 1;
}

static void count(void *data, bool is_error, const char *line)
{
    CHECK(*line);
    ((int *)data)[is_error]++;
}

static void images(const char *image, const char *source)
{
    struct extol_mkfs_options options = {.struct_size = sizeof options, .label = "built"};
    int found[2] = {0, 0}, told = 0;
    struct extol_stat attr;
    struct extol_fs *fs;
    unsigned char zero = 0xff;
    FILE *stream;

    FAILS(extol_build(image, source, &options, stop, &told) == -1, ECANCELED, "stopped");
    CHECK(told == 1);
    FAILS(!extol_open(image, "ro"), ENOENT, image);
    CHECK(extol_build(image, source, &options, NULL, NULL) == 0);
    CHECK(extol_check(image, count, found) == 0 && !found[1]);
    CHECK(extol_replay(image, NULL) == 0);
    CHECK((fs = extol_open(image, "ro")));
    CHECK(extol_stat(fs, "/library.c", &attr) == 0 && attr.size > 1000);
    CHECK(extol_close(fs) == 0);
    FAILS(!extol_open(image, "frobnicate"), EINVAL, "frobnicate");
    options.struct_size = 8;
    FAILS(extol_build(image, source, &options, NULL, NULL) == -1, EINVAL, "struct_size");

    /* All but the superblock and the descriptors is gone. */
    CHECK((stream = fopen(image, "r+b")));
    for (long at = 8 << 10; at < 256 << 10; at++) {
        CHECK(fseek(stream, at, SEEK_SET) == 0 && fwrite(&zero, 1, 1, stream) == 1);
    }
    fclose(stream);
    CHECK(extol_check(image, count, found) == 1 && found[1] > 0);
}

int main(int argc, char **argv)
{
    struct extol_mkfs_options options = {
        .struct_size = sizeof options,
        .size = 64 << 20,
        .label = "tested",
        .features = "fast_commit",
    };
    struct extol_statfs sizes;
    struct extol_fs *fs;

    CHECK(argc == 4);
    CHECK(!strcmp(extol_version(), EXTOL_VERSION));
    FAILS(!extol_open(argv[1], NULL), ENOENT, argv[1]);
    FAILS(extol_mkfs(argv[1], NULL) == -1, EINVAL, "size");
    options.features = "no_such_feature";
    FAILS(extol_mkfs(argv[1], &options) == -1, EINVAL, "no_such_feature");
    FAILS(!extol_open(argv[1], NULL), ENOENT, argv[1]);
    options.features = "fast_commit";
    CHECK(extol_mkfs(argv[1], &options) == 0);
    CHECK((fs = extol_open(argv[1], NULL)));
    CHECK(extol_statfs(fs, &sizes) == 0);
    CHECK(sizes.block_size == 1024 && sizes.name_max == 255 && sizes.blocks_free > 10000);
    files(fs);
    names(fs);
    attributes(fs);
    directories(fs);
    threads(fs);
    CHECK(extol_sync(fs) == 0);
    CHECK(extol_close(fs) == 0);
    CHECK(extol_close(NULL) == 0 && extol_file_close(NULL) == 0 && extol_closedir(NULL) == 0);
    CHECK(extol_check(argv[1], NULL, NULL) == 0);
    on_memory(argv[1]);
    images(argv[2], argv[3]);
    puts("1 passed, 0 failed");
    return 0;
}
