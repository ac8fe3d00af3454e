/* A driver library for tests: 8 GPUs (FAKE_GPUS), whose faults a file (FAKE_FAULTS) names.
 *
 * Lines of the file, read at each call:
 *   CALL CODE        the call (without "nvmlDeviceGet") fails with CODE, on every GPU
 *   CALL/GPU CODE    ... on one GPU only
 *   sleep CALL MS    the call takes MS milliseconds; CALL/GPU: on one GPU only
 *   value CALL/GPU N the call answers N: MigMode, TotalEccErrors, Throttle, Xid
 * GPUs are listed against PCI order on purpose: number 0 has the highest bus address.
 * FAKE_PID is the process on each GPU. Built with -DWITHOUT_V2 it is an old driver.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct { int number; } device;

static device devices[64];

static int count(void) {
  const char *text = getenv("FAKE_GPUS");
  return text ? atoi(text) : 8;
}

static int fault(const char *call, device *gpu) {
  const char *path = getenv("FAKE_FAULTS");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[256], name[64], one[80];
  int value, result = 0;
  if (!file) return 0;
  snprintf(one, sizeof one, "%s/%d", call, gpu ? gpu->number : -1);
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "sleep %63s %d", name, &value) == 2) {
      if (!strcmp(name, call) || !strcmp(name, one)) usleep((useconds_t)value * 1000);
    } else if (sscanf(line, "%63s %d", name, &value) == 2) {
      if (!strcmp(name, call) || !strcmp(name, one) || !strcmp(name, "all")) result = value;
    }
  }
  fclose(file);
  return result;
}

static int value_of(const char *call, device *gpu, int otherwise) {
  const char *path = getenv("FAKE_FAULTS");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[256], name[64], one[80];
  int value, result = otherwise;
  if (!file) return result;
  snprintf(one, sizeof one, "%s/%d", call, gpu->number);
  while (fgets(line, sizeof line, file))
    if (sscanf(line, "value %63s %d", name, &value) == 2 && !strcmp(name, one)) result = value;
  fclose(file);
  return result;
}

#define FAIL(call, gpu) { int code = fault(call, gpu); if (code) return code; }

int nvmlInit_v2(void) {
  for (int i = 0; i < 64; i++) devices[i].number = i;
  FAIL("Init", NULL)
  return 0;
}
int nvmlInitWithFlags(u32 flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) {
  switch (code) {
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
  }
}
int nvmlSystemGetDriverVersion(char *text, u32 size) {
  FAIL("DriverVersion", NULL)
  snprintf(text, size, "580.1.2");
  return 0;
}
int nvmlDeviceGetCount_v2(u32 *number) { *number = (u32)count(); return 0; }
int nvmlDeviceGetHandleByIndex_v2(u32 number, device **gpu) {
  *gpu = &devices[number];
  FAIL("HandleByIndex", *gpu)
  return 0;
}
int nvmlDeviceGetUUID(device *gpu, char *text, u32 size) {
  FAIL("UUID", gpu)
  snprintf(text, size, gpu->number < 32 ? "GPU-%d" : "MIG-%d", gpu->number);
  return 0;
}
int nvmlDeviceGetName(device *gpu, char *text, u32 size) {
  FAIL("Name", gpu)
  snprintf(text, size, gpu->number < 32 ? "NVIDIA H200" : "NVIDIA H200 MIG 3g.71gb");
  return 0;
}
int nvmlDeviceGetPciInfo_v3(device *gpu, char *info) {
  FAIL("PciInfo", gpu)
  u32 *words = (u32 *)(info + 16);
  memset(info, 0, 68);
  words[1] = (u32)(0x80 - gpu->number);
  snprintf(info + 36, 32, "00000000:%02X:00.0", words[1]);
  return 0;
}
int nvmlDeviceGetMemoryInfo(device *gpu, u64 *memory) {
  FAIL("MemoryInfo", gpu)
  memory[0] = 1000; memory[1] = 700; memory[2] = 300;
  return 0;
}
#ifndef WITHOUT_V2
int nvmlDeviceGetMemoryInfo_v2(device *gpu, u64 *memory) {
  FAIL("MemoryInfo", gpu)
  memory[1] = 1000; memory[2] = 100; memory[3] = 700; memory[4] = 200 + (u64)gpu->number;
  return 0;
}
#endif
int nvmlDeviceGetUtilizationRates(device *gpu, u32 *rates) {
  FAIL("UtilizationRates", gpu)
  rates[0] = 50; rates[1] = 20;
  return 0;
}
int nvmlDeviceGetTemperature(device *gpu, int sensor, u32 *value) {
  (void)sensor;
  FAIL("Temperature", gpu)
  *value = 40;
  return 0;
}
int nvmlDeviceGetPowerUsage(device *gpu, u32 *value) {
  FAIL("PowerUsage", gpu)
  *value = 123456;
  return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(device *gpu, u32 *value) {
  FAIL("EnforcedPowerLimit", gpu)
  *value = 700000;
  return 0;
}
static int processes(device *gpu, const char *call, u32 *number, char *list, u64 used) {
  FAIL(call, gpu)
  const char *pid = getenv("FAKE_PID");
  if (!pid) { *number = 0; return 0; }
  if (*number < 1) { *number = 1; return 7; }
  *(u32 *)list = (u32)atoi(pid);
  *(u64 *)(list + 8) = used;
  ((u32 *)list)[4] = ((u32 *)list)[5] = 0xffffffffu;
  *number = 1;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device *gpu, u32 *number, char *list) {
  return processes(gpu, "ComputeProcesses", number, list, gpu->number ? 150 : ~0ull);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device *gpu, u32 *number, char *list) {
  (void)list;
  FAIL("GraphicsProcesses", gpu)
  *number = 0;
  return 0;
}
/* A GPU in MIG mode has instances in the places 0 and 2, with the numbers 32 + 4 * GPU + place. */
int nvmlDeviceGetMigMode(device *gpu, u32 *current, u32 *pending) {
  FAIL("MigMode", gpu)
  *current = *pending = (u32)value_of("MigMode", gpu, 0);
  return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(device *gpu, u32 *number) { (void)gpu; *number = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *gpu, u32 place, device **part) {
  if (place != 0 && place != 2) return 6;
  *part = &devices[32 + 4 * gpu->number + (int)place];
  return 0;
}
int nvmlDeviceGetGpuInstanceId(device *part, u32 *number) {
  *number = (u32)(part->number % 4 + 1);
  return 0;
}
int nvmlDeviceGetComputeInstanceId(device *part, u32 *number) {
  (void)part;
  *number = 0;
  return 0;
}
int nvmlDeviceGetTotalEccErrors(device *gpu, int kind, int counter, u64 *number) {
  if (kind != 1 || counter != 0) return 2;
  FAIL("TotalEccErrors", gpu)
  *number = (u64)value_of("TotalEccErrors", gpu, 0);
  return 0;
}
int nvmlDeviceGetCurrentClocksEventReasons(device *gpu, u64 *bits) {
  FAIL("Throttle", gpu)
  *bits = (u64)value_of("Throttle", gpu, 1);
  return 0;
}
int nvmlEventSetCreate(void **group) { *group = devices; return 0; }
int nvmlDeviceRegisterEvents(device *gpu, u64 kinds, void *group) {
  (void)group; (void)kinds;
  FAIL("RegisterEvents", gpu)
  return 0;
}
int nvmlEventSetWait_v2(void *group, u64 *event, u32 limit_ms) {
  (void)group;
  for (int i = 0; i < count(); i++) {
    int number = value_of("Xid", &devices[i], 0);
    if (number) {
      event[0] = (u64)&devices[i]; event[1] = 8; event[2] = (u64)number; event[3] = 0;
      usleep(100000);
      return 0;
    }
  }
  usleep((limit_ms < 500 ? limit_ms : 500) * 1000);
  return 10;
}
