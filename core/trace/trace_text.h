// Text of trace files: JSON strings, times, and the file itself, plain or gzip.
//
// Thread-safety: a TraceFile is for one thread; functions are pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace legoai::graph {

// In JSON quotes. `text` is UTF-8.
std::string Quoted(absl::string_view text);

// Times in trace files are whole nanoseconds: rounded once, so the end of one task and the start of the next stay in order.
int64_t Nanoseconds(double seconds);

// Appends as microseconds. Perfetto multiplies the number by 1000 and truncates, which would turn 1.001 into 1000 ns and make
// slices overlap; a tenth of a nanosecond is added so that it truncates to the right one.
void AppendMicroseconds(int64_t nanoseconds, std::string* text);

// A file written sequentially, compressed with gzip if its name ends in ".gz". It buffers at most 256 KiB.
class TraceFile {
 public:
  // Errors, here and of Close: FieldError of `field` if the file cannot be written.
  static absl::StatusOr<std::unique_ptr<TraceFile>> Create(std::string field, std::string path);
  ~TraceFile();  // closes it
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Close() reports write errors.
  void Append(absl::string_view text);
  // Call it once, after the last Append. An incomplete file is removed.
  absl::Status Close();
  // Appended text, before compression.
  int64_t text_bytes() const { return text_bytes_; }

 private:
  TraceFile(std::string field, std::string path, void* file) : field_(std::move(field)), path_(std::move(path)), file_(file) {}

  const std::string field_, path_;
  void* file_;  // gzFile; null once it is closed
  int64_t text_bytes_ = 0;
  int error_ = 0;  // errno of the first write that failed
};

}  // namespace legoai::graph
