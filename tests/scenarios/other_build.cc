#include "tests/scenarios/other_build.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "core/process/build_version.h"
#include "proto/status.h"

namespace legoai::scenarios {
namespace {

namespace fs = std::filesystem;

// lego-sim has none of its own: whoever starts it has captured with it.
struct Program {
  const char* path;
  bool has_version;
  const char* of_next_release;
};
constexpr Program kPrograms[] = {{"server/main/legoai-server", true, "tests/scenarios/next_release_server"},
                                 {"worker/agent/legoai-agent", true, "worker/agent/legoai-agent"},
                                 {"worker/train/legoai-trainer", true, "worker/train/legoai-trainer"},
                                 {"simulator/estimate/lego-sim", false, "simulator/estimate/lego-sim"}};

absl::Status CopyWithVersion(const Program& program, const fs::path& to, const std::string& version, const std::string& other) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  std::ifstream from(program.path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(from), {}};
  const size_t at = bytes.find(version);
  const bool once = at != std::string::npos && bytes.find(version, at + 1) == std::string::npos;
  if (program.has_version && !once)
    return absl::InternalError(absl::StrCat(program.path, " does not hold its version, ", version, ", exactly once"));
  if (program.has_version) bytes.replace(at, version.size(), other);
  if (!(std::ofstream(to, std::ios::binary) << bytes).flush())
    return absl::InternalError(absl::StrCat(to.string(), " cannot be written"));
  fs::permissions(to, fs::perms::owner_all, error);
  return error ? absl::InternalError(absl::StrCat(to.string(), ": ", error.message())) : absl::OkStatus();
}

}  // namespace

std::string OtherBuildVersion(const std::string& version) {
  std::string other = version;
  for (size_t i = version.find('+') + 1; i < other.size(); ++i) other[i] = other[i] == '0' ? '1' : '0';
  return other;
}

absl::Status MakeOtherBuild(const std::string& folder) {
  const std::string version(launch::BuildVersion());
  for (const Program& program : kPrograms)
    RETURN_IF_ERROR(CopyWithVersion(program, fs::path(folder) / program.path, version, OtherBuildVersion(version)));
  return absl::OkStatus();
}

absl::Status MakeNextRelease(const std::string& folder) {
  for (const Program& program : kPrograms) {
    const fs::path to = fs::path(folder) / program.path;
    std::error_code error;
    fs::create_directories(to.parent_path(), error);
    if (!error) fs::create_symlink(fs::absolute(program.of_next_release), to, error);
    if (error) return absl::InternalError(absl::StrCat(to.string(), ": ", error.message()));
  }
  return absl::OkStatus();
}

}  // namespace legoai::scenarios
