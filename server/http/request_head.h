// What a request's line and headers must be like before anything is done for it. libevent is lenient about much that decides
// where a request ends and whom it is for; a proxy in front that reads it another way would let one client speak in the name of
// another (request smuggling). So whatever can be read in two ways is refused. Pure functions, thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace legoai::server {

// Where the head ends that `bytes` begin with: behind its first empty line. npos: not yet.
size_t EndOfHead(std::string_view bytes);

// `head`: from the request line to the empty line. Errors, InvalidArgument with the header as field: no or several Host in
// HTTP/1.1, or one that is not NAME[:PORT]; Content-Length that is no number or of several values; Transfer-Encoding other than
// `chunked` alone, or beside Content-Length; a body for a method that has none; folded lines, names that are no tokens, control
// characters; a target of another host than Host.
absl::Status CheckRequestHead(std::string_view head);

}  // namespace legoai::server
