/* What both stand-ins share: their settings, and ways to go wrong. */
#include <signal.h>

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static void misbehave(const char *how) {
    if (strcmp(how, "hang") == 0) for (;;) pause();
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "segfault") == 0) raise(SIGSEGV);
    if (strcmp(how, "devour") == 0) {
        void *more;
        while ((more = malloc(1 << 20))) memset(more, 1, 1 << 20);
        abort();
    }
}

static inline int gpu_count(void) {
    const char *gpus = setting("STANDIN_GPUS", "");
    int number = *gpus != 0;
    for (; *gpus; gpus++) number += *gpus == ';';
    return number;
}

/* Field `wanted` of GPU `index` in STANDIN_GPUS; empty where there is none. */
static inline const char *field(int index, int wanted) {
    static char found[256];
    const char *at = setting("STANDIN_GPUS", "");
    while (index-- > 0) {
        at = strchr(at, ';');
        if (!at) return "";
        at++;
    }
    while (wanted-- > 0) {
        at += strcspn(at, "|;");
        if (*at != '|') return "";
        at++;
    }
    snprintf(found, sizeof found, "%.*s", (int)strcspn(at, "|;"), at);
    return found;
}
