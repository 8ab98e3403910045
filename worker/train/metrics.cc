#include "worker/train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "core/model/model_facts.h"
#include "proto/status.h"

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

Meter::Meter(const v1::Start& start, int64_t tokens_per_step) : start_(start), tokens_per_step_(tokens_per_step) {}

void Meter::Add(const StepBreakdown& step) {
  ++steps_;
  step_ns_ += step.step_ns;
  data_ns_ += step.data_ns;
  if (step.steps > 0) measured_.Add(step);
}

v1::StepMetrics Meter::Take(int64_t step, absl::Time now) {
  v1::StepMetrics metrics;
  metrics.set_attempt(start_.attempt());
  metrics.set_step(step);
  metrics.set_time_unix_seconds(absl::ToDoubleSeconds(now - absl::UnixEpoch()));
  if (step_ns_ > 0) {
    const double per_step = 1e-9 / static_cast<double>(steps_);
    metrics.set_step_seconds(per_step * static_cast<double>(step_ns_));
    metrics.set_data_seconds(per_step * static_cast<double>(data_ns_));
    metrics.set_tokens_per_second(static_cast<double>(tokens_per_step_) / metrics.step_seconds());
    AddUtilization(&metrics);
  }
  if (measured_.steps > 0) *metrics.add_ranks() = measured_.Means(start_.rank());
  steps_ = step_ns_ = data_ns_ = 0;
  measured_ = StepBreakdown();
  return metrics;
}

// HFU is the larger: where it is a share of the peak, MFU is.
void Meter::AddUtilization(v1::StepMetrics* metrics) {
  fault_.clear();
  const double model_flops = start_.model_flops_per_token(), peak = start_.peak_flops_per_second();
  if (peak <= 0 || model_flops <= 0) return;
  const auto share = [&](double flops_per_token) {
    return model::ModelFlopsUtilization(flops_per_token * metrics->tokens_per_second() / static_cast<double>(start_.world_size()),
                                        peak);
  };
  const auto mfu = share(model_flops), hfu = share(std::max(model_flops, start_.hardware_flops_per_token()));
  if (!hfu.ok()) {
    fault_ = std::string(hfu.status().message());
    return;
  }
  metrics->set_mfu(*mfu);
  metrics->set_hfu(*hfu);
}

absl::StatusOr<std::unique_ptr<TensorboardWriter>> TensorboardWriter::Create(const std::string& folder, const std::string& suffix,
                                                                             absl::Time now) {
  RETURN_IF_ERROR(checkpoint::MakeFolders(folder));
  const std::string path = absl::StrCat(folder, "/events.out.tfevents.", absl::ToUnixSeconds(now), ".", suffix);
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) return checkpoint::FileError(path, "cannot make", errno);
  std::unique_ptr<TensorboardWriter> writer(new TensorboardWriter(path, descriptor));
  v1::TensorboardEvent version;
  version.set_wall_time(Seconds(now));
  version.set_file_version("brain.Event:2");
  const absl::Status written = writer->WriteEvent(version);
  if (written.ok()) return writer;
  unlink(path.c_str());
  return written;
}

TensorboardWriter::~TensorboardWriter() { close(descriptor_); }

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
  const int64_t bytes = static_cast<int64_t>(record.size());
  for (int64_t done = 0; done < bytes;) {
    const ssize_t written = pwrite(descriptor_, record.data() + done, bytes - done, end_ + done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      // Readers take a torn record for one that is being written, and wait for its end.
      [[maybe_unused]] const int cut = ftruncate(descriptor_, end_);
      return checkpoint::FileError(path_, "cannot write", error);
    }
    done += written;
  }
  end_ += bytes;
  return absl::OkStatus();
}

}  // namespace legoai::train
