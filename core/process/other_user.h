// Another user of this host, with whose rights a privileged process starts its children and touches what they write. Linux.
//
// What such a child writes it may also have replaced by a link: whoever opens or removes that with rights of its own would open
// or remove what the link leads to. A thread that acts as the child's user (ActAs) has no such rights, whatever path it is given.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace legoai::launch {

struct OtherUser {
  std::string name;  // of the user database
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // all that it is in, `gid` among them
  std::string home;           // need not be there
};

// Limits of its children, or the hard ones of this process where these are lower.
inline constexpr int64_t kMostThreadsOfUser = 16'384;  // RLIMIT_NPROC: threads of all processes that the user has on this host
inline constexpr int64_t kMostFilesOfChild = 65'536;   // RLIMIT_NOFILE

// Looks it up, and whether this process may become it. Errors, as FieldErrors of `field`: there is no such user; it is root, or
// the user of this process; this process has no CAP_SETUID and CAP_SETGID, or is kept from using them. Thread-safe.
absl::StatusOr<OtherUser> FindOtherUser(std::string_view field, const std::string& name);

// From here on the calling thread, and threads that it starts, have the rights of the user and no capability; the rest of the
// process keeps its own. For good; OK where the thread does so already. It keeps nobody from the process's rights who can run
// code in it. Errors: Internal; then the thread must do nothing more with files.
absl::Status ActAs(const OtherUser& user);

// Runs `work` on a thread of its own that acts as the user, and waits for it. Errors: those of ActAs; then it has not run.
absl::Status RunAs(const OtherUser& user, const std::function<void()>& work);

// Makes the calling process the user for good, between fork and exec, also where the thread that forked acts as it: its ids and
// groups, no capability, no way to new ones (no_new_privs), no core dumps, and the limits above. Async-signal-safe. 0, or errno.
int BecomeForGood(const OtherUser& user);

// Lowers the calling process's limit of `resource` (RLIMIT_*), soft and hard, to `most` where it is higher. Async-signal-safe. 0, or
// errno.
int LowerLimit(int resource, uint64_t most);

// Marks all descriptors from 3 on close-on-exec. Async-signal-safe.
void CloseAllOnExec();

// NAME=VALUE of this process's environment that a trainer needs, with HOME and USER of the user: a list of names and prefixes of
// names (docs/security.md), so that what is a secret to this process stays one. `with_keys`: also AWS_* and SSL_CERT_*, for an
// object store. No proxy's: there is none on the way there (core/objectstore/s3_request.cc), and its address may hold a password.
std::vector<std::string> EnvironmentOf(const OtherUser& user, bool with_keys);

// Makes the folder PARENT/NAME for the user, which may not write in PARENT, or sees that it is there and the user's. Where this
// process may not make it either, that is left to the user, who may be let (a network file system that knows no root). Errors, as
// FieldErrors of `field`: it is another's, or no folder; ResourceExhausted if the disk is full. Not for a thread that acts as a
// user, unless the folder is there.
absl::Status GiveFolder(std::string_view field, const std::string& parent, const std::string& name, const OtherUser& user);

}  // namespace legoai::launch
