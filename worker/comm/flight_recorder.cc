#include "worker/comm/flight_recorder.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace legoai::comm {
namespace {

constexpr std::chrono::milliseconds kLook{100};  // between two looks at what is pending

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

int64_t CopySizes(const std::vector<int64_t>& sizes, int64_t (&out)[6]) {
  const int64_t count = std::min<int64_t>(sizes.size(), 6);
  std::copy_n(sizes.begin(), count, out);
  return count;
}

}  // namespace

FlightRecorder::FlightRecorder(std::unique_ptr<FlightRing> ring)
    : ring_(std::move(ring)),
      watch_(
          ring_->capacity(), [this](const MarkWatch::Moment& moment) { Note(moment); }, kLook) {}

int64_t FlightRecorder::Created(const Call& call) {
  watch_.Poll();
  Counts& counts = counts_[call.group];
  FlightRing::Record record;
  record.id = next_id_++;
  record.group = call.group;
  record.stream = call.stream;
  record.peer = call.peer;
  const bool message = std::strcmp(call.kind, "send") == 0 || std::strcmp(call.kind, "recv") == 0;
  ++(message ? counts.messages : counts.collectives);
  record.collective_sequence = counts.collectives;
  record.p2p_sequence = counts.messages;
  record.operation = ++counts.operations;
  record.created_ns = NowNs();
  record.bytes = call.bytes;
  record.input_dims = CopySizes(call.input_sizes, record.input_sizes);
  record.output_dims = CopySizes(call.output_sizes, record.output_sizes);
  std::strncpy(record.kind, call.kind, sizeof record.kind - 1);
  std::strncpy(record.dtype, c10::toString(call.dtype), sizeof record.dtype - 1);
  return static_cast<int64_t>(ring_->Append(record));
}

void FlightRecorder::Started(int64_t id, int64_t stream, std::unique_ptr<StreamMark> mark) {
  const MarkWatch::Moment moment{static_cast<uint64_t>(id), /*completed=*/false};
  mark == nullptr ? Note(moment) : watch_.Add(stream, moment, std::move(mark));
}

void FlightRecorder::Completed(int64_t id, int64_t stream, std::unique_ptr<StreamMark> mark) {
  const MarkWatch::Moment moment{static_cast<uint64_t>(id), /*completed=*/true};
  mark == nullptr ? Note(moment) : watch_.Add(stream, moment, std::move(mark));
}

void FlightRecorder::Note(const MarkWatch::Moment& moment) {
  moment.completed ? ring_->SetCompleted(moment.record, NowNs()) : ring_->SetStarted(moment.record, NowNs());
}

}  // namespace legoai::comm
