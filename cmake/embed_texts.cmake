# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT, a C++ source that holds all files that match PATTERN under ROOT as text, as the
# function coda::gpu::FUNCTION, so that the library needs no file at run time. For coda_embed.
file(GLOB_RECURSE names RELATIVE ${ROOT} ${ROOT}/${PATTERN})
list(SORT names)
set(entries "")
foreach(name IN LISTS names)
  file(READ ${ROOT}/${name} text)
  string(APPEND entries "    {\"${name}\", R\"embedded(${text})embedded\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Made by cmake/embed_texts.cmake.
#include \"base/embedded_text.h\"

namespace coda::gpu {

std::span<const EmbeddedText> ${FUNCTION}() {
  static constexpr EmbeddedText kTexts[] = {
${entries}};
  return kTexts;
}

}  // namespace coda::gpu
")
