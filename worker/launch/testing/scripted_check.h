// What test_trainer answers as `legoai-trainer --check=FD` would: that all has passed, but for what LEGOAI_TEST_CHECK names,
// words with commas between: "device:GPU-b" and "disk" have failed, "pair:0-2" has failed of these slots, "die:GPU-b" ends
// without an answer, and "hang:GPU-b" never ends.
#pragma once

namespace legoai::launch::testing {

int RunScriptedCheck(int fd);

}  // namespace legoai::launch::testing
