// Messages with random contents, for properties of the text forms. Every field is set or not by chance; enum values are those
// that have a text. Thread-safety: as the generator.
#pragma once

#include <google/protobuf/message.h>

#include <random>

namespace legoai {

void FillRandomly(std::mt19937_64& random, google::protobuf::Message* message, int depth = 0);

}  // namespace legoai
