#include "core/process/other_user.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"

namespace legoai::launch {
namespace {

constexpr uid_t kSame = static_cast<uid_t>(-1);
constexpr size_t kMostGroups = 65'536;  // of Linux

// Of the calling thread. The library has no functions for them, and libcap's take memory, which nobody may after fork.
struct Capabilities {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct words[_LINUX_CAPABILITY_U32S_3] = {};

  bool Get() { return syscall(SYS_capget, &header, words) == 0; }
  bool Set() { return syscall(SYS_capset, &header, words) == 0; }
};

bool HasCapability(int capability) {
  Capabilities own;
  return own.Get() && (own.words[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability)) != 0;
}

// The system calls themselves: the library's functions would change all threads of the process.
int SetGroups(const OtherUser& user) {
  return syscall(SYS_setgroups, user.groups.size(), user.groups.data()) == 0 ? 0 : errno;
}
int SetGroupIds(gid_t real, gid_t effective, gid_t saved) {
  return syscall(SYS_setresgid, real, effective, saved) == 0 ? 0 : errno;
}
int SetUserIds(uid_t real, uid_t effective, uid_t saved) {
  return syscall(SYS_setresuid, real, effective, saved) == 0 ? 0 : errno;
}

// Leaves none in effect, so that an agent that is not root but has capabilities does not keep them where it acts as another.
int LowerCapabilities() {
  Capabilities own;
  if (!own.Get()) return errno;
  for (auto& word : own.words) word.effective = 0;
  return own.Set() ? 0 : errno;
}

// A thread that acts as another has them still, but not in effect.
void RaiseCapabilities() {
  Capabilities own;
  if (!own.Get()) return;
  for (auto& word : own.words) word.effective = word.permitted;
  own.Set();
}

int DropCapabilities() {
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  return Capabilities().Set() ? 0 : errno;
}

int LimitAll() {
  if (const int error = LowerLimit(RLIMIT_CORE, 0); error != 0) return error;
  if (const int error = LowerLimit(RLIMIT_NPROC, kMostThreadsOfUser); error != 0) return error;
  return LowerLimit(RLIMIT_NOFILE, kMostFilesOfChild);
}

absl::StatusOr<OtherUser> LookUp(std::string_view field, const std::string& name) {
  passwd entry = {};
  passwd* found = nullptr;
  std::vector<char> text(size_t{64} << 10);
  const int error = getpwnam_r(name.c_str(), &entry, text.data(), text.size(), &found);
  if (error != 0)
    return FieldError(field, name, absl::StrCat("cannot be looked up: ", std::strerror(error)), absl::StatusCode::kUnavailable);
  if (found == nullptr)
    return FieldError(field, name,
                      "is no user of this host (`getent passwd` lists them): give the name of one, or make it with useradd");
  OtherUser user{.name = name, .uid = entry.pw_uid, .gid = entry.pw_gid, .groups = {}, .home = entry.pw_dir};
  int count = static_cast<int>(kMostGroups);
  user.groups.resize(kMostGroups);
  if (getgrouplist(name.c_str(), entry.pw_gid, user.groups.data(), &count) < 0)
    return FieldError(field, name, "is in more groups than Linux gives a process: name a user that is in fewer");
  user.groups.resize(static_cast<size_t>(count));
  return user;
}

// Names and, where they end with _, prefixes of names. Paths of a user's own (XDG_*) are not among them.
constexpr const char* kPassedOn[] = {
    "PATH",   "TMPDIR", "LANG",    "LANGUAGE", "LC_",    "TZ",       "LD_LIBRARY_PATH",     "GLIBC_TUNABLES", "MALLOC_",
    "CUDA_",  "NCCL_",  "NVIDIA_", "TORCH_",   "GLOO_",  "PYTORCH_", "LEGOAI_KERNEL_CACHE", "LEGOAI_CXX",     "LEGOAI_NVRTC",
    "UCX_",   "FI_",    "RDMAV_",  "OMP_",     "GOMP_",  "KMP_",     "MKL_",                "DNNL_",          "ONEDNN_",
    "LEGOAI_TEST_"};
constexpr const char* kKeys[] = {"AWS_", "SSL_CERT_FILE", "SSL_CERT_DIR"};

bool IsOneOf(std::string_view name, const char* one) {
  const std::string_view text = one;
  return text.back() == '_' ? name.substr(0, text.size()) == text : name == text;
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  const int number_;
};

bool IsEmpty(int folder) {
  const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = copy < 0 ? nullptr : fdopendir(copy);
  if (entries == nullptr) {
    if (copy >= 0) close(copy);
    return false;
  }
  int found = 0;
  while (found <= 2 && readdir(entries) != nullptr) ++found;
  closedir(entries);
  return found <= 2;  // . and ..
}

}  // namespace

absl::StatusOr<OtherUser> FindOtherUser(std::string_view field, const std::string& name) {
  ASSIGN_OR_RETURN(OtherUser user, LookUp(field, name));
  if (user.uid == 0)
    return FieldError(field, name, "may do everything on this host: name a user that may do little, made for this");
  if (user.uid == geteuid())
    return FieldError(field, name,
                      "is the user that this process runs as, which keeps nothing apart: start it as root, or leave this out");
  if (!HasCapability(CAP_SETUID) || !HasCapability(CAP_SETGID))
    return FieldError(field, name,
                      absl::StrCat("cannot be switched to by user ", geteuid(),
                                   ", who has no CAP_SETUID and CAP_SETGID: start this as root, or leave it out"),
                      absl::StatusCode::kPermissionDenied);
  if (const absl::Status tried = RunAs(user, [] {}); !tried.ok())
    return FieldError(field, name, absl::StrCat(tried.message(), ": allow this process to change users, or leave it out"),
                      absl::StatusCode::kPermissionDenied);
  return user;
}

absl::Status ActAs(const OtherUser& user) {
  if (geteuid() == user.uid) return absl::OkStatus();
  int error = SetGroups(user);
  if (error == 0) error = SetGroupIds(kSame, user.gid, kSame);
  if (error == 0) error = SetUserIds(kSame, user.uid, kSame);  // root's capabilities end here
  if (error == 0) error = LowerCapabilities();
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("this process cannot act as user ", user.name, " (", std::strerror(error), ")"));
}

absl::Status RunAs(const OtherUser& user, const std::function<void()>& work) {
  absl::Status status;
  std::thread thread([&] {
    status = ActAs(user);
    if (status.ok()) work();
  });
  thread.join();
  return status;
}

int BecomeForGood(const OtherUser& user) {
  RaiseCapabilities();
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability)
    prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);  // who may not has none that no_new_privs would not keep away
  if (const int error = SetGroups(user); error != 0) return error;
  if (const int error = SetGroupIds(user.gid, user.gid, user.gid); error != 0) return error;
  if (const int error = SetUserIds(user.uid, user.uid, user.uid); error != 0) return error;
  if (const int error = DropCapabilities(); error != 0) return error;
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  return LimitAll();
}

int LowerLimit(int resource, uint64_t most) {
  rlimit limit = {};
  const auto which = static_cast<__rlimit_resource>(resource);
  if (getrlimit(which, &limit) != 0) return errno;
  limit.rlim_max = std::min<rlim_t>(limit.rlim_max, most);
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(which, &limit) == 0 ? 0 : errno;
}

void CloseAllOnExec() {
  if (syscall(SYS_close_range, 3u, UINT_MAX, CLOSE_RANGE_CLOEXEC) == 0) return;
  // Before Linux 5.11.
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_max, 1 << 20));
  for (int descriptor = 3; descriptor < end; ++descriptor) fcntl(descriptor, F_SETFD, FD_CLOEXEC);
}

std::vector<std::string> EnvironmentOf(const OtherUser& user, bool with_keys) {
  std::vector<std::string> environment = {"HOME=" + user.home, "USER=" + user.name, "LOGNAME=" + user.name};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view line = *entry;
    const std::string_view name = line.substr(0, line.find('='));
    const auto is_it = [name](const char* one) { return IsOneOf(name, one); };
    const bool passes = std::any_of(std::begin(kPassedOn), std::end(kPassedOn), is_it) ||
                        (with_keys && std::any_of(std::begin(kKeys), std::end(kKeys), is_it));
    if (passes) environment.emplace_back(line);
  }
  return environment;
}

absl::Status GiveFolder(std::string_view field, const std::string& parent, const std::string& name, const OtherUser& user) {
  const std::string path = absl::StrCat(parent, "/", name);
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
    if (errno == EACCES || errno == EPERM) return absl::OkStatus();  // who tries next is told why not
    return Annotate(FileError(path, "cannot make the folder", errno), field);
  }
  const Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts = {};
  // Looked at first: who gives it away does so before it is filled.
  const bool is_empty = folder.number() >= 0 && IsEmpty(folder.number());
  if (folder.number() < 0 || fstat(folder.number(), &facts) != 0)
    return FieldError(field, path, absl::StrCat("is no folder, or a link to one (", std::strerror(errno), "): remove it"),
                      absl::StatusCode::kFailedPrecondition);
  if (facts.st_uid == user.uid) return absl::OkStatus();
  if (!is_empty || facts.st_uid != geteuid())
    return FieldError(field, path,
                      absl::StrCat("belongs to user ", facts.st_uid, ", and trainers run as ", user.name, ": `chown -R ",
                                   user.name, "` it, where they are to go on with what is in it"),
                      absl::StatusCode::kFailedPrecondition);
  if (fchown(folder.number(), user.uid, user.gid) == 0) return absl::OkStatus();
  return FieldError(field, path, absl::StrCat("cannot be given to user ", user.name, ": ", std::strerror(errno)),
                    absl::StatusCode::kFailedPrecondition);
}

}  // namespace legoai::launch
