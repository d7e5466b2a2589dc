/*
 * Stands between a program and the files below one folder (LD_PRELOAD), and keeps a journal of what
 * the program did to them: every write, truncation and sync, every name that came, went or changed.
 * From the journal the tests rebuild what a disk could hold after the power went at any moment.
 *
 * POWERCUT_FOLDER   the folder; everything else is left alone
 * POWERCUT_JOURNAL  the journal, outside of the folder; it is appended to
 * POWERCUT_REFUSE   a file; while it holds a number, whatever would change the folder fails with
 *                   that errno, as on a volume that has become read-only (30) or broken (5); with
 *                   a negative number the program ends there, between two records
 *
 * A record of the journal, in the byte order of the machine: what (4 bytes), length of the name
 * (4), offset (8), length of the data (8), name, data. Names are relative to the folder.
 *
 *   write     offset and data
 *   truncate  offset: the new length
 *   sync      offset: the length of the journal when the sync began; only what stands before is
 *             certainly on the disk. An empty name is the folder itself: its names are.
 *   create, unlink, rename (data: the new name)
 *
 * What a mapping changes is not seen: it must not need to last (the -shm file of SQLite need not).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum what { WRITE = 1, TRUNCATE, SYNC, CREATE, UNLINK, RENAME };

struct record {
    uint32_t what, name_length;
    uint64_t offset, data_length;
};

static char folder[PATH_MAX];
static size_t folder_length;
static const char *refuse;
static int journal = -1;
static uint64_t journal_length;
/* Held over an operation and its record, so that both come in one order. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name, type, ...)                                      \
    static type (*real)(__VA_ARGS__);                              \
    if (!real)                                                     \
        *(void **)&real = dlsym(RTLD_NEXT, name);

static void give_up(const char *why)
{
    fprintf(stderr, "powercut: %s: %s\n", why, strerror(errno));
    abort();
}

static ssize_t real_write(int fd, const void *data, size_t length)
{
    REAL("write", ssize_t, int, const void *, size_t)
    return real(fd, data, length);
}

static int real_open(const char *path, int flags, mode_t mode)
{
    REAL("open64", int, const char *, int, ...)
    return real(path, flags, mode);
}

__attribute__((constructor)) static void begin(void)
{
    const char *of = getenv("POWERCUT_FOLDER"), *to = getenv("POWERCUT_JOURNAL");
    refuse = getenv("POWERCUT_REFUSE");
    if (!of || !realpath(of, folder))
        give_up("POWERCUT_FOLDER");
    folder_length = strlen(folder);
    if (!to)
        return;
    journal = real_open(to, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    struct stat stat;
    if (journal < 0 || fstat(journal, &stat) != 0)
        give_up("POWERCUT_JOURNAL");
    journal_length = stat.st_size;
}

/* The name of a path below the folder, or NULL. */
static const char *below(const char *path)
{
    if (folder_length == 0 || strncmp(path, folder, folder_length) != 0)
        return NULL;
    path += folder_length;
    if (*path == '/')
        return path + 1;
    return *path ? NULL : path;
}

/* The same for a path as a caller gives it. Its last part need not exist. */
static const char *below_at(int at, const char *path, char *buffer)
{
    char whole[PATH_MAX], parent[PATH_MAX];
    if (*path == '/' || at == AT_FDCWD) {
        snprintf(whole, sizeof whole, "%s", path);
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", at);
        ssize_t length = readlink(link, parent, sizeof parent - 1);
        if (length < 0)
            return NULL;
        parent[length] = 0;
        if (snprintf(whole, sizeof whole, "%s/%s", parent, path) >= (int)sizeof whole)
            return NULL;
    }
    char *slash = strrchr(whole, '/');
    const char *last = slash ? slash + 1 : whole;
    if (slash == whole)
        return NULL;
    if (slash)
        *slash = 0;
    if (!realpath(slash ? whole : ".", parent))
        return NULL;
    if (snprintf(buffer, PATH_MAX, "%s/%s", parent, last) >= PATH_MAX)
        return NULL;
    return below(buffer);
}

/* The name of an open file below the folder, or NULL; also NULL once it is unlinked. */
static const char *below_fd(int fd, char *buffer)
{
    if (folder_length == 0 || fd == journal)
        return NULL;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, buffer, PATH_MAX - 1);
    if (length < 0)
        return NULL;
    buffer[length] = 0;
    const char *name = below(buffer);
    struct stat stat;
    return name && fstat(fd, &stat) == 0 && stat.st_nlink > 0 ? name : NULL;
}

/* The errno with which everything is to fail, or 0. */
static int refused(void)
{
    char text[16] = {0};
    int fd = refuse ? real_open(refuse, O_RDONLY | O_CLOEXEC, 0) : -1;
    if (fd < 0)
        return 0;
    if (read(fd, text, sizeof text - 1) < 0)
        text[0] = 0;
    close(fd);
    int number = atoi(text);
    if (number < 0) {
        pthread_mutex_lock(&lock);
        _exit(1);
    }
    return number;
}

/* Adds a record; the lock is held. */
static void note(enum what what, const char *name, uint64_t offset, const void *data, size_t length)
{
    if (journal < 0)
        return;
    struct record record = {what, strlen(name), offset, length};
    size_t total = sizeof record + record.name_length + length;
    char *bytes = malloc(total);
    if (!bytes)
        give_up("the journal");
    memcpy(bytes, &record, sizeof record);
    memcpy(bytes + sizeof record, name, record.name_length);
    if (length)
        memcpy(bytes + sizeof record + record.name_length, data, length);
    if (real_write(journal, bytes, total) != (ssize_t)total)
        give_up("the journal");
    free(bytes);
    journal_length += total;
}

/* Runs `act`, which sets `result`, on an open file; `record` notes it if it succeeded. */
#define ON_FILE(fd, act, success, record)                          \
    char buffer[PATH_MAX];                                         \
    const char *name = below_fd(fd, buffer);                       \
    if (!name) {                                                   \
        act;                                                       \
        return result;                                             \
    }                                                              \
    if ((errno = refused()))                                       \
        return -1;                                                 \
    pthread_mutex_lock(&lock);                                     \
    act;                                                           \
    int error = errno;                                             \
    if (success)                                                   \
        record;                                                    \
    pthread_mutex_unlock(&lock);                                   \
    errno = error;                                                 \
    return result;

/* Where the next plain write to an open file goes. */
static off_t here(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return lseek(fd, 0, flags >= 0 && flags & O_APPEND ? SEEK_END : SEEK_CUR);
}

ssize_t write(int fd, const void *data, size_t length)
{
    ssize_t result;
    off_t offset = 0;
    ON_FILE(fd, (offset = here(fd), result = real_write(fd, data, length)), result > 0,
            note(WRITE, name, offset, data, result))
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    REAL("writev", ssize_t, int, const struct iovec *, int)
    char buffer[PATH_MAX];
    if (!below_fd(fd, buffer))
        return real(fd, parts, count);
    ssize_t total = 0;
    for (int i = 0; i < count; i++) {
        ssize_t written = write(fd, parts[i].iov_base, parts[i].iov_len);
        if (written < 0)
            return total ? total : -1;
        total += written;
        if ((size_t)written < parts[i].iov_len)
            break;
    }
    return total;
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset)
{
    REAL("pwrite64", ssize_t, int, const void *, size_t, off64_t)
    ssize_t result;
    ON_FILE(fd, result = real(fd, data, length, offset), result > 0,
            note(WRITE, name, offset, data, result))
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset)
{
    return pwrite64(fd, data, length, offset);
}

int ftruncate64(int fd, off64_t length)
{
    REAL("ftruncate64", int, int, off64_t)
    int result;
    ON_FILE(fd, result = real(fd, length), result == 0, note(TRUNCATE, name, length, NULL, 0))
}

int ftruncate(int fd, off_t length)
{
    return ftruncate64(fd, length);
}

static int synced(int fd, int (*real)(int))
{
    char buffer[PATH_MAX];
    const char *name = below_fd(fd, buffer);
    if (!name)
        return real(fd);
    if ((errno = refused()))
        return -1;
    pthread_mutex_lock(&lock);
    uint64_t began = journal_length;
    pthread_mutex_unlock(&lock);
    /* Others may write meanwhile. */
    int result = real(fd), error = errno;
    pthread_mutex_lock(&lock);
    if (result == 0)
        note(SYNC, name, began, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int fsync(int fd)
{
    REAL("fsync", int, int)
    return synced(fd, real);
}

int fdatasync(int fd)
{
    REAL("fdatasync", int, int)
    return synced(fd, real);
}

static int open_at(int at, const char *path, int flags, mode_t mode)
{
    REAL("openat64", int, int, const char *, int, ...)
    char buffer[PATH_MAX];
    int writes = flags & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR);
    const char *name = writes ? below_at(at, path, buffer) : NULL;
    if (!name || !*name)
        return real(at, path, flags, mode);
    struct stat stat;
    int error = refused();
    if (error && (error == EROFS || flags & O_TRUNC || lstat(buffer, &stat) != 0)) {
        errno = error;
        return -1;
    }
    pthread_mutex_lock(&lock);
    int existed = lstat(buffer, &stat) == 0;
    int fd = real(at, path, flags, mode);
    error = errno;
    if (fd >= 0 && !existed)
        note(CREATE, name, 0, NULL, 0);
    else if (fd >= 0 && flags & O_TRUNC)
        note(TRUNCATE, name, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

#define MODE                                                       \
    mode_t mode = 0;                                               \
    if (flags & (O_CREAT | O_TMPFILE)) {                           \
        va_list more;                                              \
        va_start(more, flags);                                     \
        mode = va_arg(more, mode_t);                               \
        va_end(more);                                              \
    }

int open(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE return open_at(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE return open_at(at, path, flags, mode); }

int unlinkat(int at, const char *path, int flags)
{
    REAL("unlinkat", int, int, const char *, int)
    char buffer[PATH_MAX];
    const char *name = flags & AT_REMOVEDIR ? NULL : below_at(at, path, buffer);
    if (!name)
        return real(at, path, flags);
    if ((errno = refused()))
        return -1;
    pthread_mutex_lock(&lock);
    int result = real(at, path, flags), error = errno;
    if (result == 0)
        note(UNLINK, name, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    REAL("renameat", int, int, const char *, int, const char *)
    char old_buffer[PATH_MAX], new_buffer[PATH_MAX];
    const char *old = below_at(from_at, from, old_buffer), *new = below_at(to_at, to, new_buffer);
    if (!old && !new)
        return real(from_at, from, to_at, to);
    if ((errno = refused()))
        return -1;
    if (!old || !new) {
        errno = EXDEV;
        give_up("a rename into or out of the folder");
    }
    pthread_mutex_lock(&lock);
    int result = real(from_at, from, to_at, to), error = errno;
    if (result == 0)
        note(RENAME, old, 0, new, strlen(new));
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}
