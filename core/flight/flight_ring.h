// The flight recorder's ring: the latest collectives and messages of one rank, in a file mapped into memory, so that it can be
// read when the rank is stopped, hung or dead.
//
// Layout of the file: a header, the groups' table (text), then `capacity` records of fixed size; record n lies at n modulo
// capacity. One process writes (from several threads); others may read at any time: a record torn by a concurrent write shows
// an inconsistent id and is left out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/mesh/mesh.h"
#include "proto/legoai/v1/flight_record.pb.h"

namespace legoai::comm {

class FlightRing {
 public:
  struct Record {                              // plain memory, shared between processes
    uint64_t id = 0;                           // 1, 2, ...; written last, 0 while the record is being written
    int64_t group = 0, stream = 0, peer = -1;  // peer: rank in the group, -1 for collectives
    int64_t collective_sequence = 0, p2p_sequence = 0, operation = 0;  // counted within the group
    int64_t created_ns = 0, started_ns = 0, completed_ns = 0;          // since the epoch; 0: not yet
    int64_t bytes = 0;
    int64_t input_dims = 0, output_dims = 0;
    int64_t input_sizes[6] = {}, output_sizes[6] = {};  // the first six dimensions
    char kind[24] = {};                                 // "all_gather"
    char dtype[16] = {};                                // PyTorch's name, "Float"
  };

  struct Header;  // of the file; flight_ring.cc

  // Creates the file `path` (its folder must exist) for `capacity` records.
  static absl::StatusOr<std::unique_ptr<FlightRing>> Create(const std::string& path, int64_t rank, int64_t world_size,
                                                            const std::vector<mesh::Group>& groups, int64_t capacity,
                                                            const std::string& backend, int64_t timeout_ms);
  ~FlightRing();
  FlightRing(const FlightRing&) = delete;
  FlightRing& operator=(const FlightRing&) = delete;

  // Appends and returns the id. From one thread.
  uint64_t Append(Record record);
  int64_t capacity() const;
  // From any thread. No effect if the record has been overwritten since.
  void SetStarted(uint64_t id, int64_t now_ns);
  void SetCompleted(uint64_t id, int64_t now_ns);

 private:
  FlightRing(void* memory, size_t bytes);
  Record* Slot(uint64_t id);
  Header* header_;
  Record* records_;
  size_t bytes_;
};

// Reads the ring of a live or dead process. Errors: NotFound; InvalidArgument for a file that is not a ring.
absl::StatusOr<v1::FlightDump> ReadFlightRing(const std::string& path, const std::string& reason);

// More ranks than any cluster has: a file with higher ranks is damaged.
inline constexpr int64_t kMostFlightRanks = 1'000'000;

// The dump as JSON with PyTorch's field names (entries, pg_config, record_id, collective_seq_id, time_discovered_started_ns ...),
// and back; reads PyTorch's own dumps too, as JSON and as pickle. Those do not state their rank: it is -1. Their groups are
// called "KEY:DESCRIPTION", as in PyTorch's analyzer.
std::string FlightDumpToJson(const v1::FlightDump& dump);
absl::StatusOr<v1::FlightDump> FlightDumpFromJson(const std::string& json);
absl::StatusOr<v1::FlightDump> FlightDumpFromPickle(const std::string& bytes);

}  // namespace legoai::comm
