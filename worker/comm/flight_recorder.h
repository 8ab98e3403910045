// Writes every collective and message of this process into a FlightRing.
//
// If a stream only enqueues (CUDA), a record stays "scheduled" until the stream has reached the call, and "started" until the
// call is done: its times are those of the discovery, by the next record or the watch's next poll (as in PyTorch's recorder). For
// a stopped rank, the ring has what was discovered until then.
#pragma once

#include <map>
#include <memory>

#include "core/flight/flight_ring.h"
#include "worker/comm/runtime.h"
#include "worker/comm/stream_marks.h"

namespace legoai::comm {

class FlightRecorder : public CommObserver {
 public:
  explicit FlightRecorder(std::unique_ptr<FlightRing> ring);
  int64_t Created(const Call& call) override;
  void Started(int64_t id, int64_t stream, std::unique_ptr<StreamMark> mark) override;
  void Completed(int64_t id, int64_t stream, std::unique_ptr<StreamMark> mark) override;

 private:
  struct Counts {
    int64_t collectives = 0, messages = 0, operations = 0;
  };
  void Note(const MarkWatch::Moment& moment);

  std::unique_ptr<FlightRing> ring_;
  std::map<int64_t, Counts> counts_;  // by group
  uint64_t next_id_ = 1;
  MarkWatch watch_;  // last: it writes into the ring as it goes
};

}  // namespace legoai::comm
