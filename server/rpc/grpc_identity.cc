#include "server/rpc/grpc_identity.h"

#include <iterator>
#include <string>

#include "proto/errors.h"
#include "server/rpc/admission.h"

namespace legoai::server {

absl::StatusOr<access::Identity> IdentityOf(access::Gate* gate, const grpc::ServerContextBase& context, std::string_view call) {
  if (gate == nullptr) return access::Anybody();
  const std::string client = ClientOf(context.peer());
  const auto [first, last] = context.client_metadata().equal_range("authorization");
  if (first == last) return gate->Enter("", client, call);
  // Of two, a proxy and the server might each take another one.
  if (std::next(first) != last)
    return FieldError("authorization", "", "is there twice: send one token", absl::StatusCode::kUnauthenticated);
  return gate->Enter(access::BearerOf(std::string_view(first->second.data(), first->second.size())), client, call);
}

}  // namespace legoai::server
