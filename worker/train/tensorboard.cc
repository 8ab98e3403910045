#include "worker/train/tensorboard.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "worker/checkpoint/crc32c.h"
#include "worker/checkpoint/files.h"

namespace legoai::train {
namespace {

void AppendLittleEndian(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

// Checksums that lie beside their data are rotated and shifted, so that a checksum of both is no special value.
void AppendMaskedCrc(const std::string& data, std::string* out) {
  const uint32_t crc = checkpoint::Crc32c(data.data(), data.size());
  AppendLittleEndian(((crc >> 15) | (crc << 17)) + 0xa282ead8u, 4, out);
}

double Seconds(absl::Time time) { return static_cast<double>(absl::ToUnixMicros(time)) / 1e6; }

}  // namespace

absl::StatusOr<std::unique_ptr<TensorboardWriter>> TensorboardWriter::Create(const std::string& folder, const std::string& suffix,
                                                                             absl::Time now) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return checkpoint::FileError(folder, "cannot make the folder", error.value());
  const std::string path = absl::StrCat(folder, "/events.out.tfevents.", absl::ToUnixSeconds(now), ".", suffix);
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return checkpoint::FileError(path, "cannot make", errno);
  std::unique_ptr<TensorboardWriter> writer(new TensorboardWriter(path, file));
  v1::TensorboardEvent version;
  version.set_wall_time(Seconds(now));
  version.set_file_version("brain.Event:2");
  if (absl::Status status = writer->WriteEvent(version); !status.ok()) return status;
  return writer;
}

TensorboardWriter::~TensorboardWriter() { std::fclose(file_); }

absl::Status TensorboardWriter::Write(int64_t step, absl::Time now, const std::vector<std::pair<std::string, double>>& scalars) {
  v1::TensorboardEvent event;
  event.set_wall_time(Seconds(now));
  event.set_step(step);
  for (const auto& [tag, value] : scalars) {
    v1::TensorboardSummary::Value* entry = event.mutable_summary()->add_value();
    entry->set_tag(tag);
    entry->set_simple_value(static_cast<float>(value));
  }
  return WriteEvent(event);
}

absl::Status TensorboardWriter::WriteEvent(const v1::TensorboardEvent& event) {
  const std::string data = event.SerializeAsString();
  std::string record;
  AppendLittleEndian(data.size(), 8, &record);
  AppendMaskedCrc(record, &record);
  record += data;
  AppendMaskedCrc(data, &record);
  if (std::fwrite(record.data(), 1, record.size(), file_) != record.size() || std::fflush(file_) != 0) {
    return checkpoint::FileError(path_, "cannot write", errno);
  }
  return absl::OkStatus();
}

}  // namespace legoai::train
