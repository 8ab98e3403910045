// What answers the calls of a service: one function per method, free of HTTP. The JSON front end looks them up by name.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "server/rpc/job_watch.h"

namespace legoai::server {

struct Handlers {
  using Message = google::protobuf::Message;
  using Cancelled = std::function<bool()>;  // the client has left, or the server stops
  using Unary = std::function<absl::Status(const Message& request, const Cancelled& cancelled, Message* response)>;
  // `send` gives false when the client has left.
  using Stream = std::function<absl::Status(const Message& request, const std::function<bool(const Message&)>& send,
                                            const Cancelled& cancelled)>;

  std::map<std::string, Unary> unary;     // by method: "CreateJob"
  std::map<std::string, Stream> streams;  // "Plan"
  std::set<std::string> slow;             // of them, those that take seconds: they have threads of their own
  JobLook look_at_job;                    // WatchJob, as one look after another
  std::function<void()> before_scrape;    // sets the gauges of Metrics; may be empty
};

}  // namespace legoai::server
