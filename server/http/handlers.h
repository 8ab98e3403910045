// The functions that answer the calls of a service, one per method, independent of HTTP. The JSON front end finds them by name.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/rpc/control_plane.h"
#include "server/rpc/job_watch.h"
#include "server/rpc/leader_calls.h"

namespace legoai::server {

struct Handlers {
  using Message = google::protobuf::Message;
  using Cancelled = std::function<bool()>;  // the client has left or the server is stopping
  using Unary = std::function<absl::Status(const Message& request, const Cancelled& cancelled, Message* response)>;
  // `send` returns false once the client has left.
  using Stream = std::function<absl::Status(const Message& request, const std::function<bool(const Message&)>& send,
                                            const Cancelled& cancelled)>;

  std::map<std::string, Unary> unary;     // by method: "CreateJob"
  std::map<std::string, Stream> streams;  // "Plan"
  std::set<std::string> slow;             // those that take seconds, which have a queue of their own
  JobPoll poll_job;                       // WatchJob, one poll after another
  std::function<void()> before_scrape;    // sets the gauges of Metrics; may be empty
  LeaderCalls* leader = nullptr;          // not owned; null: this server answers every call itself
  // What /readyz says, or why the server is not ready; empty: always "ok".
  std::function<absl::StatusOr<std::string>()> ready;
};

// The methods of the service ControlPlane, answered by the same functions as over gRPC. Thread-safe. `control` is not owned and
// must outlive what is returned. `before_scrape` sets the gauges of Metrics; it may be empty.
Handlers ControlPlaneHandlers(ControlPlane* control, std::function<void()> before_scrape);

// What the page can plan for without any machine: the known models and devices, and a cluster by its name. Not calls of the
// service: none of it is stored, and `lego models` and `lego hardware` show the same tables. Thread-safety: pure functions.

// {"models": [{"name", "parameters", ...}], "devices": [{"type", "memory_bytes", ...}]}.
std::string CatalogJson();

// The Cluster message of TYPE:DEVICES_PER_NODExNODES. Reads no file. Errors: FieldError of "cluster".
absl::StatusOr<std::string> ClusterJson(const std::string& name);

}  // namespace legoai::server
