// Messages as YAML, for `-o yaml`: block style, the tree of proto/json/reflect.h. Readers of YAML 1.1 and 1.2 see the same
// values: text is always in double quotes, numbers have a decimal point before an exponent. Thread-safety: pure functions.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "proto/json/reflect.h"

namespace legoai {

std::string ToYaml(const google::protobuf::Message& message);

// The same for a tree that is not a message: a list of messages' trees. Ends with a line break.
std::string ToYaml(const Tree& tree);

}  // namespace legoai
