#include "proto/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai {
namespace {

// What is wrong with a path, apart from what it is called in the error. OK: nothing is.
struct Problem {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string what, remedy;
  bool found() const { return code != absl::StatusCode::kOk; }
};

Problem OfErrno(std::string_view what, int error_number) {
  Problem problem{absl::StatusCode::kUnavailable, absl::StrCat(std::string(what), ": ", std::strerror(error_number)), ""};
  switch (error_number) {
    case ENOENT: problem.code = absl::StatusCode::kNotFound, problem.remedy = "check the path"; break;
    case EACCES:
    case EPERM:
    case EROFS:
      problem.code = absl::StatusCode::kPermissionDenied, problem.remedy = "choose a place that this user may use";
      break;
    case ENOSPC:
    case EDQUOT:
      problem.code = absl::StatusCode::kResourceExhausted, problem.remedy = "free some space or choose another disk";
      break;
    // No room that is made later helps.
    case EFBIG:
      problem.code = absl::StatusCode::kOutOfRange;
      problem.remedy = "raise the limit on the size of a file (ulimit -f) or choose another disk";
      break;
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG: problem.code = absl::StatusCode::kInvalidArgument, problem.remedy = "check the path"; break;
    default: break;
  }
  return problem;
}

// Of a call that reads: the disk, or the file system's own checksums, may say that what was there is lost.
Problem OfReading(std::string_view what, int error_number) {
  Problem problem = OfErrno(what, error_number);
  if (error_number == EIO || error_number == EUCLEAN || error_number == EBADMSG) problem.code = absl::StatusCode::kDataLoss;
  return problem;
}

Problem NotRegular(mode_t mode) {
  const char* kind = S_ISDIR(mode) ? "a folder" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
  return {absl::StatusCode::kInvalidArgument, absl::StrCat("is ", kind, ", not a regular file"), "check the path"};
}

Problem TooLarge(int64_t most_bytes) {
  return {absl::StatusCode::kInvalidArgument, absl::StrCat("is too large: more than ", most_bytes, " bytes"), "check the path"};
}

// Closes it.
class Descriptor {
 public:
  ~Descriptor() {
    if (number >= 0) close(number);
  }
  int number = -1;
};

// Without O_NONBLOCK a pipe that nobody writes to would be waited for.
Problem Open(const std::string& path, Descriptor* descriptor, struct stat* facts) {
  descriptor->number = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor->number < 0) return OfReading("cannot open", errno);
  if (fstat(descriptor->number, facts) != 0) return OfReading("cannot look at", errno);
  return S_ISREG(facts->st_mode) ? Problem() : NotRegular(facts->st_mode);
}

// What the system says of a file's size is a hint: files of /proc have 0, and a file may grow.
Problem Read(const std::string& path, int64_t most_bytes, std::string* contents) {
  constexpr size_t kPieceBytes = size_t{1} << 16;
  Descriptor descriptor;
  struct stat facts;
  if (Problem problem = Open(path, &descriptor, &facts); problem.found()) return problem;
  if (facts.st_size > most_bytes) return TooLarge(most_bytes);
  contents->resize(static_cast<size_t>(facts.st_size) + 1);
  for (size_t filled = 0;;) {
    const ssize_t got = read(descriptor.number, contents->data() + filled, contents->size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return OfReading("cannot read", errno);
    filled += static_cast<size_t>(got);
    if (static_cast<int64_t>(filled) > most_bytes) return TooLarge(most_bytes);
    if (got == 0) {
      contents->resize(filled);
      return Problem();
    }
    if (filled == contents->size()) contents->resize(filled + std::max(filled, kPieceBytes));
  }
}

absl::Status ErrorOf(const std::string& path, const Problem& problem) {
  return FieldError(path, "", absl::StrCat(problem.what, problem.remedy.empty() ? "" : "; ", problem.remedy), problem.code);
}

}  // namespace

absl::Status FileError(const std::string& path, const char* what, int error_number) {
  return ErrorOf(path, OfErrno(what, error_number));
}

absl::Status ReadError(const std::string& path, const char* what, int error_number) {
  return ErrorOf(path, OfReading(what, error_number));
}

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t most_bytes) {
  std::string contents;
  if (const Problem problem = Read(path, most_bytes, &contents); problem.found()) return ErrorOf(path, problem);
  return contents;
}

absl::StatusOr<std::string> ReadFileOf(std::string_view field, const std::string& path, int64_t most_bytes,
                                       std::string_view remedy) {
  std::string contents;
  if (const Problem problem = Read(path, most_bytes, &contents); problem.found())
    return FieldError(field, path, absl::StrCat(problem.what, "; ", std::string(remedy)), problem.code);
  return contents;
}

absl::StatusOr<int> OpenRegularFile(const std::string& path) {
  Descriptor descriptor;
  struct stat facts;
  if (const Problem problem = Open(path, &descriptor, &facts); problem.found()) return ErrorOf(path, problem);
  return std::exchange(descriptor.number, -1);
}

absl::StatusOr<std::vector<std::string>> ReadFolder(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<std::string> paths;
  std::error_code error;
  fs::directory_iterator entry(path, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) paths.push_back(entry->path().string());
  if (error) return FileError(path, "cannot read the folder", error.value());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace legoai
