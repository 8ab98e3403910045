// A slow disk for tests, to be preloaded (LD_PRELOAD) into processes that are not changed otherwise. In the program called
// $SLOW_DISK_PROGRAM, for every file whose path begins with $SLOW_DISK_PATH, each write, each sync and each first look at a page
// that is mapped for reading takes $SLOW_DISK_MILLISECONDS longer. Each one that did adds a byte to the file
// $SLOW_DISK_COUNT.PID, so that a test knows how much slower this process was.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr uintptr_t kPage = 4096;

struct Settings {
  char path[4096] = "";  // empty: nothing is slow here
  timespec delay = {};
  int count = -1;
};

Settings ReadSettings() {
  Settings settings;
  const char *program = getenv("SLOW_DISK_PROGRAM"), *path = getenv("SLOW_DISK_PATH");
  const char *count = getenv("SLOW_DISK_COUNT"), *milliseconds = getenv("SLOW_DISK_MILLISECONDS");
  if (!program || !path || !count || !milliseconds || strcmp(program, program_invocation_short_name) != 0) return settings;
  snprintf(settings.path, sizeof(settings.path), "%s", path);
  settings.delay = {atol(milliseconds) / 1000, atol(milliseconds) % 1000 * 1'000'000};
  char name[4096];
  snprintf(name, sizeof(name), "%s.%d", count, static_cast<int>(getpid()));
  settings.count = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  return settings;
}

const Settings& TheSettings() {
  static const Settings settings = ReadSettings();
  return settings;
}

bool IsSlow(int descriptor) {
  const size_t length = strlen(TheSettings().path);
  if (length == 0) return false;
  char link[32], path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t got = readlink(link, path, sizeof(path));
  return got >= static_cast<ssize_t>(length) && memcmp(path, TheSettings().path, length) == 0;
}

// Async-signal-safe.
void Delay() {
  timespec left = TheSettings().delay;
  while (nanosleep(&left, &left) != 0) {
  }
  [[maybe_unused]] const ssize_t written = write(TheSettings().count, "x", 1);
}

// Mappings whose pages may not be touched before the handler has let them wait. Added to only: mappings of another time at the
// same addresses are never protected, so the handler is not asked about them.
struct Mapping {
  uintptr_t begin, end;
};
Mapping mappings[1024];
std::atomic<int> mappings_used{0};

void OnFault(int, siginfo_t* info, void*) {
  const int error = errno;
  const uintptr_t at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (int i = 0; i < mappings_used.load(); ++i) {
    if (at < mappings[i].begin || at >= mappings[i].end) continue;
    Delay();
    mprotect(reinterpret_cast<void*>(at / kPage * kPage), kPage, PROT_READ);
    errno = error;
    return;
  }
  signal(SIGSEGV, SIG_DFL);  // a real one: it comes again
}

void* MapSlowly(void* address, size_t length, int flags, int descriptor, off_t offset) {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGSEGV, &action, nullptr) == 0;
  }();
  const long made = syscall(SYS_mmap, address, length, PROT_NONE, flags, descriptor, offset);
  const int place = mappings_used.load();
  if (made == -1 || !installed || place == std::size(mappings)) abort();
  mappings[place] = {static_cast<uintptr_t>(made), static_cast<uintptr_t>(made) + length};
  mappings_used.store(place + 1);
  return reinterpret_cast<void*>(made);
}

}  // namespace

extern "C" {

ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  if (IsSlow(descriptor)) Delay();
  return syscall(SYS_pwrite64, descriptor, data, bytes, offset);
}

int fsync(int descriptor) {
  if (IsSlow(descriptor)) Delay();
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

int fdatasync(int descriptor) {
  if (IsSlow(descriptor)) Delay();
  return static_cast<int>(syscall(SYS_fdatasync, descriptor));
}

void* mmap(void* address, size_t length, int protection, int flags, int descriptor, off_t offset) noexcept {
  if (descriptor >= 0 && protection == PROT_READ && IsSlow(descriptor)) {
    return MapSlowly(address, length, flags, descriptor, offset);
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, descriptor, offset));
}

}  // extern "C"
