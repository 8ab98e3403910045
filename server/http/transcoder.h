// Maps an HTTP request to a method of a service and its request message, by the google.api.http annotations of the proto file: a
// new method needs no line here. Thread-safety: immutable.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/path_template.h"

namespace legoai::server {

class Transcoder {
 public:
  struct Call {
    const google::protobuf::MethodDescriptor* method;
    std::unique_ptr<google::protobuf::Message> request;
  };

  // Errors: a method without an annotation, or with an unsupported one (a body that is neither "*" nor empty, `**`).
  static absl::StatusOr<Transcoder> Create(const google::protobuf::ServiceDescriptor* service);

  // The method of a path. Errors: NotFound if no method has the path; Unimplemented if the path has other HTTP methods only,
  // which the message lists.
  absl::StatusOr<const google::protobuf::MethodDescriptor*> Find(const std::string& http_method, const std::string& path) const;

  // The HTTP methods that a path has: "GET, POST"; empty: none.
  std::string MethodsOf(const std::string& path) const;

  // Fields come from the path and, for methods with a body, from its JSON, otherwise from the query
  // ("page_size=10&state=a&state=b": lists repeat the key). Errors: those of Find; FieldError for a field or value that the
  // message does not take, or if path and body contradict each other.
  absl::StatusOr<Call> Transcode(const std::string& http_method, const std::string& path, const std::string& query,
                                 const std::string& body) const;

 private:
  struct Route {
    const google::protobuf::MethodDescriptor* method;
    std::string http_method;
    PathTemplate path;
    bool has_body;
  };
  using Values = std::map<std::string, std::string>;  // of the path's variables

  absl::StatusOr<std::pair<const Route*, Values>> FindRoute(const std::string& http_method, const std::string& path) const;

  std::vector<Route> routes_;
};

}  // namespace legoai::server
