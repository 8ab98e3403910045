// Channels to the server: what `lego` and agents prove it with who they are, and what it proves itself with. Thread-safety: pure
// functions of their arguments and the file system.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace grpc {
class Channel;
class ChannelArguments;
}  // namespace grpc

namespace legoai {

// Paths are of PEM files. Nothing given: a connection in clear to a server that asks for nothing.
struct ChannelSecurity {
  std::string token = {};             // sent with every call as `authorization: Bearer TOKEN`
  std::string ca = {};                // whose certificates are trusted; what turns TLS on
  std::string certificate = {}, key = {};  // of the caller, where the server asks for it
  bool insecure = false;              // sends the token in clear to another machine, too
  // How the caller's program calls its options, for errors.
  std::string ca_option = "--tls-ca", certificate_option = "--tls-cert", key_option = "--tls-key",
              insecure_option = "--insecure";
};

// A channel to "HOST:PORT". Files are read now: a later channel takes what is in them then. Errors: FieldErrors for files that
// cannot be read, a key without its certificate or the reverse, and for a token that would be sent in clear beyond this machine.
absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(const std::string& address, const ChannelSecurity& security,
                                                           const grpc::ChannelArguments& arguments);

// Whether only this machine is meant: localhost, 127.0.0.0/8, [::1], unix:.
bool IsOnThisMachine(const std::string& address);

}  // namespace legoai
