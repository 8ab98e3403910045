// Dumps of flight recorders as files: LegoAI's rings and JSON, PyTorch's JSON and pickles. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/legoai/v1/flight_record.pb.h"

namespace legoai::comm {

// Reads one, whatever it is. The rank of a dump that does not say it is in the file's name ("nccl_trace_rank_3", "rank-3.json"),
// or follows from its groups. Errors: NotFound, InvalidArgument.
absl::StatusOr<v1::FlightDump> ReadFlightFile(const std::string& path);

// Reads files and folders: a run's (its flight folder is taken), or any that holds files with ranks in their names. Of rank-R and
// rank-R.json the ring is taken, which may be of a living process; but the JSON if it has the launcher's word on the rank, which
// was written when something had gone wrong. By rank. Errors: as above; NotFound for a folder without; InvalidArgument for two
// dumps of one rank.
absl::StatusOr<std::vector<v1::FlightDump>> ReadFlight(const std::vector<std::string>& places);

}  // namespace legoai::comm
