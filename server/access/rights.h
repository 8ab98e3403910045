// Who may do what: one table of all calls (rights.cc), of gRPC and HTTP. What is not in it nobody may do. Thread-safety: pure
// functions.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/legoai/v1/access.pb.h"

namespace legoai::access {

// Of a token of all projects.
inline constexpr char kAllProjects[] = "projects/-";

struct Grant {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::string project = {};  // "projects/default", kAllProjects, or empty: of none
};

// Who calls, as the Gate (gate.h) found out: by a token of this server's, or a user whom an OpenID provider vouches for.
struct Identity {
  std::string token = {};                            // "tokens/01J..."; empty: of a user, or of a server that asks for none
  std::string issuer = {}, subject = {}, user = {};  // of a user, as in AuditRecord; otherwise empty
  std::vector<Grant> grants = {};                    // of a token one, of a user any number
  int64_t expire_time_us = 0;
};

// A caller of a server without tokens: whoever reaches it may do everything.
Identity Anybody();

// "tokens/01J...", "users/anna@example.org"; empty of Anybody().
std::string NameOf(const Identity& who);

// The most that this caller may do in a project ("projects/default", kAllProjects), or anywhere; unspecified: nothing.
v1::Role RoleIn(const Identity& who, std::string_view project);
v1::Role HighestRole(const Identity& who);

// Whether calls or parts of answers about `project` ("projects/default") are this caller's business.
bool Sees(const Identity& who, std::string_view project);

// "projects/default" of "projects/default/jobs/01J..."; empty if the name is not of a project.
std::string_view ProjectOf(std::string_view name);

// Whether `who` may make this call. `call`: "legoai.v1.ControlPlane/GetJob", or a path of HTTP that is no method, "/metrics";
// `request` may be null for the latter. Errors: NotFound for what is of another project, whether it exists or not;
// PermissionDenied with the role that is needed; InvalidArgument if the request names no project where it must.
absl::Status CheckRight(const Identity& who, std::string_view call, const google::protobuf::Message* request);

// Whether the table has the call.
bool HasRow(std::string_view call);

// Takes the names of jobs of other projects out of a Worker or a ListWorkersResponse, and other projects out of a
// ListProjectsResponse; other answers stay as they are.
void HideOthers(const Identity& who, google::protobuf::Message* answer);

}  // namespace legoai::access
