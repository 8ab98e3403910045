#include "core/trace/trace_text.h"

#include <zlib.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/errors.h"

namespace legoai::graph {
namespace {

constexpr unsigned kBufferBytes = 256 << 10;

absl::Status CannotWrite(const std::string& field, const std::string& path, int error) {
  return FieldError(field, path, absl::StrCat("cannot write this file: ", std::strerror(error)), absl::StatusCode::kUnavailable);
}

}  // namespace

std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (unsigned char c : text) {
    if (c < 0x20) {
      absl::StrAppend(&out, absl::StrFormat("\\u%04x", c));
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<char>(c);
  }
  return out + "\"";
}

int64_t Nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

void AppendMicroseconds(int64_t nanoseconds, std::string* text) {
  absl::StrAppend(text, nanoseconds / 1000, ".", absl::Dec(nanoseconds % 1000, absl::kZeroPad3), "1");
}

absl::StatusOr<std::unique_ptr<TraceFile>> TraceFile::Create(std::string field, std::string path) {
  // T: as it is, without compression; e: not for child processes.
  const gzFile file = gzopen(path.c_str(), absl::EndsWith(path, ".gz") ? "wbe" : "wbeT");
  if (file == nullptr) return CannotWrite(field, path, errno);
  gzbuffer(file, kBufferBytes);
  return std::unique_ptr<TraceFile>(new TraceFile(std::move(field), std::move(path), file));
}

TraceFile::~TraceFile() {
  if (file_ != nullptr) gzclose(static_cast<gzFile>(file_));
}

void TraceFile::Append(absl::string_view text) {
  text_bytes_ += static_cast<int64_t>(text.size());
  if (text.empty() || error_ != 0) return;
  if (gzwrite(static_cast<gzFile>(file_), text.data(), static_cast<unsigned>(text.size())) == 0)
    error_ = errno != 0 ? errno : EIO;
}

absl::Status TraceFile::Close() {
  errno = 0;
  const int closed = gzclose(static_cast<gzFile>(file_));
  file_ = nullptr;
  if (closed != Z_OK && error_ == 0) error_ = errno != 0 ? errno : EIO;
  if (error_ == 0) return absl::OkStatus();
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path_, ignored)) std::filesystem::remove(path_, ignored);
  return CannotWrite(field_, path_, error_);
}

}  // namespace legoai::graph
