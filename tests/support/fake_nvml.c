/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for the library of NVIDIA's driver, libnvidia-ml.so.1: the functions that the daemon's reader calls.
 *
 * What it reports is in the file that FAKE_NVML_SCENE names; tests/support/fake_nvml.py writes it and says what each
 * line means. The file is looked at in each call and read again when another one is in its place, so a scene can change
 * while a process uses the library. With FAKE_NVML_CALLS each call is appended to a file, with the fields it asks for.
 * It is for one thread.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_GPUS = 32, MAX_FIELDS = 256, MAX_PROCESSES = 32, MAX_VALUES = 16, MAX_CALLS = 32, TEXT = 96 };
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, NOT_LOADED = 9 };
enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };

typedef struct { char name[TEXT]; double base, rate; } Value;
typedef struct { unsigned id, scope; int type, code; double base, rate; } Field;
typedef struct { unsigned pid; unsigned long long bytes; } Process;
typedef struct {
    char uuid[TEXT], name[TEXT], pci[32];
    int parent, handle, error, mig; /* parent is -1 for a whole GPU; handle and error are the codes of its calls. */
    Value values[MAX_VALUES];
    Field fields[MAX_FIELDS];
    Process processes[MAX_PROCESSES];
    int value_count, field_count, process_count;
} Gpu;
typedef struct { char function[TEXT]; int code; long hangs_from; } Rule;
typedef struct {
    char driver[TEXT];
    double start;
    Gpu gpus[MAX_GPUS];
    Rule rules[MAX_CALLS];
    int gpu_count, rule_count, is_strict;
} Scene;

static Scene scene;
static struct stat seen;
static struct { char function[TEXT]; long count; } calls[MAX_CALLS];

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double at_present(double base, double rate) { return base + rate * (now() - scene.start); }

static void read_line(char *line)
{
    Gpu *gpu = scene.gpu_count ? &scene.gpus[scene.gpu_count - 1] : NULL;
    char *word = strtok(line, "\t\n"), *rest[6] = {0};
    if (word == NULL)
        return;
    for (int i = 0; i < 6; i++)
        rest[i] = strtok(NULL, "\t\n");
    if (strcmp(word, "driver") == 0) {
        snprintf(scene.driver, TEXT, "%s", rest[0]);
    } else if (strcmp(word, "start") == 0) {
        scene.start = atof(rest[0]);
    } else if (strcmp(word, "strict") == 0) {
        scene.is_strict = atoi(rest[0]);
    } else if (strcmp(word, "fails") == 0 || strcmp(word, "hangs") == 0) {
        Rule *rule = &scene.rules[scene.rule_count++];
        snprintf(rule->function, TEXT, "%s", rest[0]);
        rule->code = strcmp(word, "fails") == 0 ? atoi(rest[1]) : OK;
        rule->hangs_from = strcmp(word, "hangs") == 0 ? atol(rest[1]) : 0;
    } else if (strcmp(word, "gpu") == 0 || strcmp(word, "instance") == 0) {
        Gpu *next = &scene.gpus[scene.gpu_count];
        memset(next, 0, sizeof *next);
        next->parent = -1;
        if (strcmp(word, "instance") == 0)
            for (next->parent = scene.gpu_count - 1; scene.gpus[next->parent].parent >= 0;)
                next->parent--;
        scene.gpu_count++;
        snprintf(next->uuid, TEXT, "%s", rest[0]);
        snprintf(next->pci, sizeof next->pci, "%s", rest[1]);
        snprintf(next->name, TEXT, "%s", rest[2]);
    } else if (strcmp(word, "handle") == 0) {
        gpu->handle = atoi(rest[0]);
    } else if (strcmp(word, "error") == 0) {
        gpu->error = atoi(rest[0]);
    } else if (strcmp(word, "mig") == 0) {
        gpu->mig = atoi(rest[0]);
    } else if (strcmp(word, "value") == 0) {
        Value *value = &gpu->values[gpu->value_count++];
        snprintf(value->name, TEXT, "%s", rest[0]);
        value->base = atof(rest[1]);
        value->rate = atof(rest[2]);
    } else if (strcmp(word, "process") == 0) {
        gpu->processes[gpu->process_count++] = (Process){(unsigned)atoi(rest[0]), strtoull(rest[1], NULL, 10)};
    } else if (strcmp(word, "field") == 0) {
        gpu->fields[gpu->field_count++] = (Field){(unsigned)strtoul(rest[0], NULL, 10), (unsigned)strtoul(rest[1], NULL, 10),
                                                  atoi(rest[2]), atoi(rest[3]), atof(rest[4]), atof(rest[5])};
    }
}

static void look(void)
{
    const char *path = getenv("FAKE_NVML_SCENE");
    struct stat status;
    char line[512];
    if (path == NULL || stat(path, &status) != 0)
        return;
    if (status.st_ino == seen.st_ino && status.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
        status.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
        return;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return;
    seen = status;
    scene.gpu_count = scene.rule_count = scene.is_strict = 0;
    scene.driver[0] = '\0';
    while (fgets(line, sizeof line, file))
        read_line(line);
    fclose(file);
}

static long count(const char *function)
{
    int i = 0;
    while (calls[i].function[0] && strcmp(calls[i].function, function) != 0)
        i++;
    snprintf(calls[i].function, TEXT, "%s", function);
    return ++calls[i].count;
}

static void note(const char *function, const char *more)
{
    const char *path = getenv("FAKE_NVML_CALLS");
    char text[4096];
    if (path == NULL)
        return;
    int length = snprintf(text, sizeof text, "%s%s\n", function, more);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || write(file, text, (size_t)length) != length)
        abort();
    close(file);
}

static int is_hanging(const char *function, long nth, long nth_of_all)
{
    for (int i = 0; i < scene.rule_count; i++) {
        const Rule *rule = &scene.rules[i];
        if (rule->hangs_from && ((strcmp(rule->function, function) == 0 && nth >= rule->hangs_from) ||
                                 (strcmp(rule->function, "any") == 0 && nth_of_all >= rule->hangs_from)))
            return 1;
    }
    return 0;
}

/* Begin a call: it may not return while the scene says so, and what is returned here is its code. */
static int begin(const char *function, const char *more)
{
    struct timespec pause = {0, 5 * 1000 * 1000};
    long nth = count(function), nth_of_all = count("any");
    look();
    note(function, more);
    while (is_hanging(function, nth, nth_of_all)) {
        nanosleep(&pause, NULL);
        look();
    }
    for (int i = 0; i < scene.rule_count; i++)
        if (scene.rules[i].code && strcmp(scene.rules[i].function, function) == 0)
            return scene.rules[i].code;
    return scene.driver[0] ? OK : NOT_LOADED;
}

/* A handle is the place in the scene, plus one. */
static Gpu *find(void *handle)
{
    intptr_t place = (intptr_t)handle - 1;
    return place >= 0 && place < scene.gpu_count ? &scene.gpus[place] : NULL;
}

static int begin_on(const char *function, const char *more, void *handle, Gpu **gpu)
{
    int code = begin(function, more);
    *gpu = find(handle);
    if (code)
        return code;
    if (*gpu == NULL)
        return INVALID;
    return (*gpu)->error;
}

static const Value *named(const Gpu *gpu, const char *name)
{
    for (int i = 0; i < gpu->value_count; i++)
        if (strcmp(gpu->values[i].name, name) == 0)
            return &gpu->values[i];
    return NULL;
}

static int number(const char *function, void *handle, const char *name, double *found)
{
    Gpu *gpu;
    const Value *value;
    int code = begin_on(function, "", handle, &gpu);
    if (code)
        return code;
    if ((value = named(gpu, name)) == NULL)
        return NOT_SUPPORTED;
    *found = at_present(value->base, value->rate);
    return OK;
}

/* Another number of a call that succeeded; 0 if the scene does not have it. */
static double part(void *handle, const char *name)
{
    const Value *value = named(find(handle), name);
    return value ? at_present(value->base, value->rate) : 0;
}

static int whole(const char *function, void *handle, const char *name, unsigned *result)
{
    double found;
    int code = number(function, handle, name, &found);
    if (code == OK)
        *result = (unsigned)found;
    return code;
}

static int text(const char *function, void *handle, size_t offset, char *result, unsigned size)
{
    Gpu *gpu;
    int code = begin_on(function, "", handle, &gpu);
    if (code == OK)
        snprintf(result, size, "%s", (const char *)gpu + offset);
    return code;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return begin(__func__, ""); }
int nvmlShutdown(void) { return begin(__func__, ""); }

const char *nvmlErrorString(int code)
{
    static char words[TEXT];
    snprintf(words, TEXT, "error %d of the stand-in", code);
    return words;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    int code = begin(__func__, "");
    if (code == OK)
        snprintf(version, size, "%s", scene.driver);
    return code;
}

int nvmlDeviceGetCount_v2(unsigned *result)
{
    int code = begin(__func__, "");
    *result = 0;
    for (int i = 0; code == OK && i < scene.gpu_count; i++)
        *result += scene.gpus[i].parent < 0;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    int code = begin(__func__, "");
    for (int i = 0; code == OK && i < scene.gpu_count; i++)
        if (scene.gpus[i].parent < 0 && index-- == 0) {
            *handle = (void *)(intptr_t)(i + 1);
            return scene.gpus[i].handle;
        }
    return code ? code : INVALID;
}

int nvmlDeviceGetUUID(void *gpu, char *uuid, unsigned size) { return text(__func__, gpu, offsetof(Gpu, uuid), uuid, size); }
int nvmlDeviceGetName(void *gpu, char *name, unsigned size) { return text(__func__, gpu, offsetof(Gpu, name), name, size); }

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; };

int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *pci)
{
    Gpu *gpu;
    int code = begin_on(__func__, "", handle, &gpu);
    if (code)
        return code;
    memset(pci, 0, sizeof *pci);
    snprintf(pci->address, sizeof pci->address, "%s", gpu->pci);
    sscanf(gpu->pci, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    return OK;
}

struct utilization { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(void *gpu, struct utilization *rates)
{
    double busy;
    int code = number(__func__, gpu, "busy", &busy);
    if (code)
        return code;
    rates->gpu = (unsigned)busy;
    rates->memory = (unsigned)part(gpu, "memory_busy");
    return OK;
}

struct memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(void *gpu, struct memory *memory)
{
    double total;
    int code = number(__func__, gpu, "memory_total", &total);
    if (code)
        return code;
    memory->total = (unsigned long long)total;
    memory->used = (unsigned long long)(part(gpu, "memory_used") + part(gpu, "memory_reserved"));
    memory->free = memory->total - memory->used;
    return OK;
}

int nvmlDeviceGetClockInfo(void *gpu, int clock, unsigned *megahertz)
{
    return clock == 1 ? whole(__func__, gpu, "sm_clock", megahertz) : NOT_SUPPORTED;
}

int nvmlDeviceGetMaxClockInfo(void *gpu, int clock, unsigned *megahertz)
{
    return clock == 1 ? whole(__func__, gpu, "sm_clock_max", megahertz) : NOT_SUPPORTED;
}

int nvmlDeviceGetTemperature(void *gpu, int sensor, unsigned *celsius)
{
    return sensor == 0 ? whole(__func__, gpu, "temperature", celsius) : INVALID;
}

int nvmlDeviceGetPowerUsage(void *gpu, unsigned *milliwatts) { return whole(__func__, gpu, "power", milliwatts); }
int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned *milliwatts) { return whole(__func__, gpu, "power_limit", milliwatts); }

struct field_value {
    uint32_t id, scope;
    int64_t timestamp, latency;
    uint32_t type, code;
    union { unsigned small; unsigned long long large; } value;
};

static void fill(const Gpu *gpu, struct field_value *value)
{
    value->code = NOT_SUPPORTED;
    for (int i = 0; i < gpu->field_count; i++) {
        const Field *field = &gpu->fields[i];
        if (field->id != value->id || field->scope != value->scope)
            continue;
        value->code = (uint32_t)field->code;
        value->type = (uint32_t)field->type;
        double found = at_present(field->base, field->rate);
        if (field->type == UNSIGNED_INT)
            value->value.small = (unsigned)(unsigned long long)found;
        else
            value->value.large = found >= 18446744073709551615.0 ? UINT64_MAX : (unsigned long long)found;
    }
}

int nvmlDeviceGetFieldValues(void *handle, int wanted, struct field_value *values)
{
    Gpu *gpu;
    char asked[4000] = "";
    for (int i = 0, length = 0; i < wanted && length < 3900; i++)
        length += snprintf(asked + length, sizeof asked - (size_t)length, " %u", values[i].id);
    int code = begin_on(__func__, asked, handle, &gpu);
    for (int i = 0; code == OK && i < wanted; i++)
        fill(gpu, &values[i]);
    for (int i = 0; code == OK && scene.is_strict && i < wanted; i++)
        if (values[i].code == NOT_SUPPORTED)
            return INVALID;
    return code;
}

struct process { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; };

static int processes(const char *function, void *handle, unsigned *size, struct process *list)
{
    Gpu *gpu;
    int code = begin_on(function, "", handle, &gpu);
    if (code)
        return code;
    unsigned room = *size;
    *size = (unsigned)gpu->process_count;
    if (*size > room)
        return TOO_SMALL;
    for (int i = 0; i < gpu->process_count; i++)
        list[i] = (struct process){gpu->processes[i].pid, gpu->processes[i].bytes, UINT32_MAX, UINT32_MAX};
    return OK;
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *gpu, unsigned *size, struct process *list)
{
    return processes(__func__, gpu, size, list);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *size, struct process *list)
{
    return processes(__func__, gpu, size, list);
}

struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(void *gpu, struct memory_v2 *memory)
{
    double total;
    int code = number(__func__, gpu, "memory_total", &total);
    if (code)
        return code;
    memory->total = (unsigned long long)total;
    memory->used = (unsigned long long)part(gpu, "memory_used");
    memory->reserved = (unsigned long long)part(gpu, "memory_reserved");
    memory->free = memory->total - memory->used - memory->reserved;
    return OK;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending)
{
    Gpu *gpu;
    int code = begin_on(__func__, "", handle, &gpu);
    if (code)
        return code;
    *current = *pending = (unsigned)gpu->mig;
    return gpu->parent < 0 ? OK : INVALID;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *result)
{
    Gpu *gpu;
    int code = begin_on(__func__, "", handle, &gpu);
    *result = 7;
    return code;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **instance)
{
    Gpu *gpu;
    int code = begin_on(__func__, "", handle, &gpu);
    intptr_t parent = (intptr_t)handle - 1;
    for (int i = 0; code == OK && i < scene.gpu_count; i++)
        if (scene.gpus[i].parent == parent && index-- == 0) {
            *instance = (void *)(intptr_t)(i + 1);
            return scene.gpus[i].handle;
        }
    return code ? code : NOT_FOUND;
}
