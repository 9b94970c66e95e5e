/* Make one system call of a program, or of any child of it, fail or be its last.
 *
 * A seccomp filter stops every call that can change a file system; the tracer counts those that concern a path below a folder and, at
 * the one that was asked for, answers an error in the kernel's place or kills every process. Static programs and threads are seen as
 * well, which a library to preload would not do. Linux on x86-64; what a shared mapping or io_uring writes is not seen.
 *
 * Built as a shared library: `fault_child` is called by the forked child before it begins, `fault_trace` by its parent.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT, KILL, FAIL, FULL }; /* FULL: this call fails and every later one that needs room on the disk, as on a full disk */
enum { FD = 1, PATH = 2, AT = 4, SECOND_PATH = 8, SECOND_AT = 16, ROOM = 32, OPEN = 64, LINK_PATH = 128, LINK_AT = 256 };

static const struct call { int number; int how; const char *name; } CALLS[] = {
    {SYS_open, PATH | OPEN, "open"}, {SYS_openat, AT | OPEN, "openat"}, {SYS_openat2, AT | OPEN, "openat2"},
    {SYS_creat, PATH | ROOM, "creat"}, {SYS_write, FD | ROOM, "write"}, {SYS_pwrite64, FD | ROOM, "pwrite64"},
    {SYS_writev, FD | ROOM, "writev"}, {SYS_pwritev, FD | ROOM, "pwritev"}, {SYS_pwritev2, FD | ROOM, "pwritev2"},
    {SYS_sendfile, FD | ROOM, "sendfile"}, {SYS_fallocate, FD | ROOM, "fallocate"}, {SYS_ftruncate, FD, "ftruncate"},
    {SYS_truncate, PATH, "truncate"}, {SYS_fsync, FD, "fsync"}, {SYS_fdatasync, FD, "fdatasync"}, {SYS_syncfs, FD, "syncfs"},
    {SYS_rename, PATH | SECOND_PATH, "rename"}, {SYS_renameat, AT | SECOND_AT, "renameat"}, {SYS_renameat2, AT | SECOND_AT, "renameat2"},
    {SYS_mkdir, PATH | ROOM, "mkdir"}, {SYS_mkdirat, AT | ROOM, "mkdirat"}, {SYS_rmdir, PATH, "rmdir"},
    {SYS_link, PATH | SECOND_PATH | ROOM, "link"}, {SYS_linkat, AT | SECOND_AT | ROOM, "linkat"},
    {SYS_symlink, LINK_PATH | ROOM, "symlink"}, {SYS_symlinkat, LINK_AT | ROOM, "symlinkat"},
    {SYS_unlink, PATH, "unlink"}, {SYS_unlinkat, AT, "unlinkat"}, {SYS_chmod, PATH, "chmod"}, {SYS_fchmod, FD, "fchmod"},
    {SYS_fchmodat, AT, "fchmodat"}, {SYS_chown, PATH, "chown"}, {SYS_lchown, PATH, "lchown"}, {SYS_fchown, FD, "fchown"},
    {SYS_fchownat, AT, "fchownat"}, {SYS_utime, PATH, "utime"}, {SYS_utimes, PATH, "utimes"}, {SYS_utimensat, AT, "utimensat"},
    {SYS_setxattr, PATH, "setxattr"}, {SYS_lsetxattr, PATH, "lsetxattr"}, {SYS_fsetxattr, FD, "fsetxattr"},
    {SYS_mknod, PATH | ROOM, "mknod"}, {SYS_mknodat, AT | ROOM, "mknodat"}, {SYS_copy_file_range, ROOM, "copy_file_range"},
    {SYS_ioctl, FD | ROOM, "ioctl(FICLONE)"},
};
enum { MANY = sizeof CALLS / sizeof *CALLS, MOST = 4096, LONGEST = 4096 };
static const unsigned FICLONE_ = 0x40049409, CHANGING = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;

/* Ask to be stopped at calls that change something, and wait for the tracer; 0, or an error number. */
int fault_child(void)
{
    struct sock_filter code[MANY * 2 + 32];
    int at = 0;
#define STEP(...) code[at++] = (struct sock_filter)__VA_ARGS__
    STEP(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
    STEP(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
    STEP(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    STEP(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    /* opening for reading, the most frequent call of all, goes on at full speed */
    STEP(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 4));
    STEP(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])));
    STEP(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CHANGING, 0, 1));
    STEP(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE));
    STEP(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    STEP(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4));
    STEP(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])));
    STEP(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FICLONE_, 0, 1));
    STEP(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE));
    STEP(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    for (int i = 0; i < MANY; i++) {
        STEP(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)CALLS[i].number, 0, 1));
        STEP(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE));
    }
    STEP(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog program = {(unsigned short)at, code};
    if (ptrace(PTRACE_TRACEME, 0, 0, 0) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return errno;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return errno;
    return raise(SIGSTOP) ? errno : 0;
}

static int linked(char *out, pid_t pid, const char *what, long number)
{
    char name[80];
    snprintf(name, sizeof name, number < 0 ? "/proc/%d/%s" : "/proc/%d/%s/%ld", pid, what, number);
    ssize_t size = readlink(name, out, LONGEST - 1);
    out[size < 0 ? 0 : size] = 0;
    return size > 0;
}

static void path_of(char *out, pid_t pid, long folder, unsigned long address)
{
    char text[LONGEST] = "", name[40];
    snprintf(name, sizeof name, "/proc/%d/mem", pid);
    int memory = open(name, O_RDONLY | O_CLOEXEC);
    if (memory >= 0) {
        size_t size = 0;
        while (address && size < sizeof text - 1 && !memchr(text, 0, size)) { /* what lies behind its end may not be there to be read */
            size_t piece = 256 - (address + size) % 256;
            if (piece > sizeof text - 1 - size) piece = sizeof text - 1 - size;
            ssize_t found = pread(memory, text + size, piece, (off_t)(address + size));
            if (found <= 0) break;
            size += (size_t)found;
        }
        text[size] = 0;
        close(memory);
    }
    out[0] = 0;
    if (text[0] == '/') { snprintf(out, LONGEST, "%s", text); return; }
    if ((int)folder == AT_FDCWD) linked(out, pid, "cwd", -1); else linked(out, pid, "fd", (int)folder);
    size_t size = strlen(out);
    if (text[0]) snprintf(out + size, LONGEST - size, "/%.2000s", text);
}

static int below(const char *path, const char *folder)
{
    size_t size = strlen(folder);
    return !strncmp(path, folder, size) && (path[size] == '/' || !path[size]);
}

/* Whether a call concerns the folder; the path that it does in `out`. */
static int concerns(const struct call *call, const struct user_regs_struct *regs, pid_t pid, const char *folder, char *out)
{
    char second[LONGEST] = "";
    out[0] = 0;
    if (call->number == SYS_copy_file_range) linked(out, pid, "fd", (int)regs->rdx);
    else if (call->how & FD) linked(out, pid, "fd", (int)regs->rdi);
    else if (call->how & PATH) path_of(out, pid, AT_FDCWD, regs->rdi);
    else if (call->how & AT) path_of(out, pid, (long)regs->rdi, regs->rsi);
    else if (call->how & LINK_PATH) path_of(out, pid, AT_FDCWD, regs->rsi);
    else if (call->how & LINK_AT) path_of(out, pid, (long)regs->rsi, regs->rdx);
    if (call->how & SECOND_PATH) path_of(second, pid, AT_FDCWD, regs->rsi);
    if (call->how & SECOND_AT) path_of(second, pid, (long)regs->rdx, regs->r10);
    if (below(second, folder)) { snprintf(out, LONGEST, "%s", second); return 1; }
    return below(out, folder);
}

static int opens_to_change(const struct call *call, const struct user_regs_struct *regs, int *room)
{
    if (!(call->how & OPEN)) return 1;
    unsigned long flags = call->number == SYS_open ? regs->rsi : call->number == SYS_openat ? regs->rdx : CHANGING;
    *room = (flags & O_CREAT) != 0;
    return (flags & CHANGING) != 0;
}

static pid_t alive[MOST];
static int lives;

static void known(pid_t pid)
{
    for (int i = 0; i < lives; i++) if (alive[i] == pid) return;
    if (lives < MOST) alive[lives++] = pid;
}

static void gone(pid_t pid)
{
    for (int i = 0; i < lives; i++) if (alive[i] == pid) { alive[i] = alive[--lives]; return; }
}

struct outcome { long seen; int reached; int status; char what[LONGEST]; };

/* Follow a child that called `fault_child` to its end and that of all its children; strike at the call of that number, from 1.
 * `pause`, where it is given, is called before each call that counts: whoever else goes on stops at its own next call. */
int fault_trace(pid_t child, const char *folder, long strike, int mode, int number, const char *log, void (*pause)(long),
                struct outcome *told)
{
    int status, full = 0;
    FILE *file = log && *log ? fopen(log, "w") : NULL;
    memset(told, 0, sizeof *told);
    lives = 0;
    if (waitpid(child, &status, __WALL) != child || !WIFSTOPPED(status)) return ECHILD;
    if (ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE
               | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL)) return errno;
    known(child);
    ptrace(PTRACE_CONT, child, 0, 0);
    for (;;) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0 && errno == EINTR) continue;
        if (pid < 0) break;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            gone(pid);
            if (pid == child) told->status = status;
            continue;
        }
        known(pid);
        int signal_ = WSTOPSIG(status), event = status >> 16;
        if (event == PTRACE_EVENT_SECCOMP) {
            struct user_regs_struct regs;
            char path[LONGEST];
            const struct call *call = NULL;
            int room;
            if (ptrace(PTRACE_GETREGS, pid, 0, &regs)) continue;
            for (int i = 0; i < MANY && !call; i++) if ((long)regs.orig_rax == CALLS[i].number) call = CALLS + i;
            room = call && call->how & ROOM;
            if (call && opens_to_change(call, &regs, &room) && concerns(call, &regs, pid, folder, path)) {
                told->seen++;
                if (file) fprintf(file, "%ld %c %s %s\n", told->seen, room ? 'R' : '-', call->name, path);
                if (pause) pause(told->seen);
                int here = told->seen == strike && mode != COUNT && !(mode == FULL && !room);
                if (here) {
                    told->reached = 1;
                    snprintf(told->what, sizeof told->what, "%s %.4000s", call->name, path);
                    full = mode == FULL;
                    if (mode == KILL) {
                        for (int i = 0; i < lives; i++) kill(alive[i], SIGKILL);
                        continue;
                    }
                }
                if ((here && mode == FAIL) || (full && room)) {
                    regs.orig_rax = (unsigned long)-1;
                    regs.rax = (unsigned long)-number;
                    ptrace(PTRACE_SETREGS, pid, 0, &regs);
                }
            }
            ptrace(PTRACE_CONT, pid, 0, 0);
        } else if (event || signal_ == SIGSTOP) {
            ptrace(PTRACE_CONT, pid, 0, 0); /* a new child begins with a SIGSTOP of the tracer's */
        } else {
            ptrace(PTRACE_CONT, pid, 0, signal_ == SIGTRAP ? 0 : signal_);
        }
    }
    if (file) fclose(file);
    return 0;
}
