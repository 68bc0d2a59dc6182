# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_mmq_global_optspecs
    string join \n json q/quiet no-progress h/help V/version
end

function __fish_mmq_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_mmq_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_mmq_using_subcommand
    set -l cmd (__fish_mmq_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c mmq -n "__fish_mmq_needs_command" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_needs_command" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_needs_command" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_needs_command" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_needs_command" -s V -l version -d 'Print version'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "stat" -d 'Figures of queues: how many messages wait, how old, who has it'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "cat" -d 'Show the messages that wait for a consumer, the oldest first, and leave them there'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "peek" -d 'Show the messages that wait for a consumer, the oldest first, and leave them there'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "tail" -d 'Show the newest messages, and follow'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "gaps" -d 'Show which messages will never come, and why'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "verify" -d 'Check every header, checksum, number, seal and place, and say what is damaged'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "put" -d 'Put messages in, from standard input or files; status 0: a power cut takes none of them'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "take" -d 'Remove messages and print them, the oldest first'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "each" -d 'Run a command for each message, until it succeeds'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "redrive" -d 'Put dead letters back into their queue'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "forward" -d 'Send messages on to NATS JetStream or a Redis stream, each once'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "consumers" -d 'Consumers: each has a place of its own and sees every message'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "purge" -d 'Give up messages: every consumer goes on behind them'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "copy" -d 'Make a second queue with the same messages, numbers and consumers'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "dump" -d 'Print all of a queue as JSON lines, for `mmq load`'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "load" -d 'Make a queue out of what `mmq dump` printed'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "salvage" -d 'Get messages out of segment files: damaged, set aside, drained, or without their queue'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "import" -d 'Make a queue of a directory of bigqueue or pqueue, which is only read'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "spool" -d 'Send a file through a queue, line by line, and check that it comes out unchanged'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "bench" -d 'Measure what the disk of a directory gives, in a queue that is removed at the end'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "completions" -d 'Print what a shell needs to complete this tool\'s command line'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "man" -d 'Print this tool\'s page of the manual, or write those of all commands into a directory'
complete -c mmq -n "__fish_mmq_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mmq -n "__fish_mmq_using_subcommand stat" -l color -d 'Colours; auto: on a terminal, unless NO_COLOR is set or TERM is dumb [default: auto]' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mmq -n "__fish_mmq_using_subcommand stat" -l output -d 'Write it there, at once as a whole' -r -F
complete -c mmq -n "__fish_mmq_using_subcommand stat" -l label -d 'The label `queue`, for each queue one [default: its path]' -r
complete -c mmq -n "__fish_mmq_using_subcommand stat" -l watch -d 'Show it again and again [default: each second]' -r
complete -c mmq -n "__fish_mmq_using_subcommand stat" -l max-lag -d 'Messages that may wait for a consumer' -r
complete -c mmq -n "__fish_mmq_using_subcommand stat" -l max-age -d 'How old the oldest of them may be' -r
complete -c mmq -n "__fish_mmq_using_subcommand stat" -l max-bytes -d 'Bytes of the segments that they take' -r
complete -c mmq -n "__fish_mmq_using_subcommand stat" -l consumer -d 'The consumer [default: each of them]' -r
complete -c mmq -n "__fish_mmq_using_subcommand stat" -l exact -d 'Sizes in bytes'
complete -c mmq -n "__fish_mmq_using_subcommand stat" -l prometheus -d 'In the text format of Prometheus'
complete -c mmq -n "__fish_mmq_using_subcommand stat" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand stat" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand stat" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand stat" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand cat" -s n -l messages -d 'At most so many' -r
complete -c mmq -n "__fish_mmq_using_subcommand cat" -l consumer -d 'The consumer whose messages they are [default: the queue\'s own, which has no name]' -r
complete -c mmq -n "__fish_mmq_using_subcommand cat" -l from -d 'Begin there, also before the consumer\'s place' -r
complete -c mmq -n "__fish_mmq_using_subcommand cat" -l to -d 'End before that message' -r
complete -c mmq -n "__fish_mmq_using_subcommand cat" -l grep -d 'Only messages that hold these bytes' -r
complete -c mmq -n "__fish_mmq_using_subcommand cat" -l head -d 'Only so many first bytes of each' -r
complete -c mmq -n "__fish_mmq_using_subcommand cat" -l framing -d 'Where a message ends [default: line]' -r -f -a "line\t'a newline behind each message'
null\t'a NUL behind each message, as for xargs -0'
length\t'the length before each: four bytes, big-endian; for any bytes'
varint\t'the length before each, in LEB128; for any bytes'
json\t'a JSON object in a line; for any bytes'
raw\t'nothing between messages; a file is one message'"
complete -c mmq -n "__fish_mmq_using_subcommand cat" -l decode -d 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once' -r
complete -c mmq -n "__fish_mmq_using_subcommand cat" -l all -d 'Everything that is held, whoever has taken it'
complete -c mmq -n "__fish_mmq_using_subcommand cat" -s c -l count -d 'Only say how many they are'
complete -c mmq -n "__fish_mmq_using_subcommand cat" -s 0 -l null -d 'The same as --framing null'
complete -c mmq -n "__fish_mmq_using_subcommand cat" -l strict -d 'End with status 6 before the first message that holds its own delimiter'
complete -c mmq -n "__fish_mmq_using_subcommand cat" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand cat" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand cat" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand cat" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmq -n "__fish_mmq_using_subcommand peek" -s n -l messages -d 'At most so many' -r
complete -c mmq -n "__fish_mmq_using_subcommand peek" -l consumer -d 'The consumer whose messages they are [default: the queue\'s own, which has no name]' -r
complete -c mmq -n "__fish_mmq_using_subcommand peek" -l from -d 'Begin there, also before the consumer\'s place' -r
complete -c mmq -n "__fish_mmq_using_subcommand peek" -l to -d 'End before that message' -r
complete -c mmq -n "__fish_mmq_using_subcommand peek" -l grep -d 'Only messages that hold these bytes' -r
complete -c mmq -n "__fish_mmq_using_subcommand peek" -l head -d 'Only so many first bytes of each' -r
complete -c mmq -n "__fish_mmq_using_subcommand peek" -l framing -d 'Where a message ends [default: line]' -r -f -a "line\t'a newline behind each message'
null\t'a NUL behind each message, as for xargs -0'
length\t'the length before each: four bytes, big-endian; for any bytes'
varint\t'the length before each, in LEB128; for any bytes'
json\t'a JSON object in a line; for any bytes'
raw\t'nothing between messages; a file is one message'"
complete -c mmq -n "__fish_mmq_using_subcommand peek" -l decode -d 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once' -r
complete -c mmq -n "__fish_mmq_using_subcommand peek" -l all -d 'Everything that is held, whoever has taken it'
complete -c mmq -n "__fish_mmq_using_subcommand peek" -s c -l count -d 'Only say how many they are'
complete -c mmq -n "__fish_mmq_using_subcommand peek" -s 0 -l null -d 'The same as --framing null'
complete -c mmq -n "__fish_mmq_using_subcommand peek" -l strict -d 'End with status 6 before the first message that holds its own delimiter'
complete -c mmq -n "__fish_mmq_using_subcommand peek" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand peek" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand peek" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand peek" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmq -n "__fish_mmq_using_subcommand tail" -s n -l messages -d 'So many of the newest [default: 10]' -r
complete -c mmq -n "__fish_mmq_using_subcommand tail" -l from -d 'Begin there' -r
complete -c mmq -n "__fish_mmq_using_subcommand tail" -l interval -d 'How often to look for more [default: 50ms]' -r
complete -c mmq -n "__fish_mmq_using_subcommand tail" -l grep -d 'Only messages that hold these bytes' -r
complete -c mmq -n "__fish_mmq_using_subcommand tail" -l head -d 'Only so many first bytes of each' -r
complete -c mmq -n "__fish_mmq_using_subcommand tail" -l framing -d 'Where a message ends [default: line]' -r -f -a "line\t'a newline behind each message'
null\t'a NUL behind each message, as for xargs -0'
length\t'the length before each: four bytes, big-endian; for any bytes'
varint\t'the length before each, in LEB128; for any bytes'
json\t'a JSON object in a line; for any bytes'
raw\t'nothing between messages; a file is one message'"
complete -c mmq -n "__fish_mmq_using_subcommand tail" -l decode -d 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once' -r
complete -c mmq -n "__fish_mmq_using_subcommand tail" -s f -l follow -d 'Go on with the messages that come, for ever'
complete -c mmq -n "__fish_mmq_using_subcommand tail" -l durable -d 'Only messages that a power cut cannot take'
complete -c mmq -n "__fish_mmq_using_subcommand tail" -s 0 -l null -d 'The same as --framing null'
complete -c mmq -n "__fish_mmq_using_subcommand tail" -l strict -d 'End with status 6 before the first message that holds its own delimiter'
complete -c mmq -n "__fish_mmq_using_subcommand tail" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand tail" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand tail" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand tail" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmq -n "__fish_mmq_using_subcommand gaps" -l deep -d 'Read every message'
complete -c mmq -n "__fish_mmq_using_subcommand gaps" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand gaps" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand gaps" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand gaps" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand verify" -l color -d 'Colours; auto: on a terminal, unless NO_COLOR is set or TERM is dumb [default: auto]' -r -f -a "auto\t''
always\t''
never\t''"
complete -c mmq -n "__fish_mmq_using_subcommand verify" -l quick -d 'Leave the messages out: the index and the headers of segments alone'
complete -c mmq -n "__fish_mmq_using_subcommand verify" -l as-opened -d 'First say what the next opening will make of the queue'
complete -c mmq -n "__fish_mmq_using_subcommand verify" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand verify" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand verify" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand verify" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand put" -l max-bytes -d 'The most disk that the queue may take' -r
complete -c mmq -n "__fish_mmq_using_subcommand put" -l on-full -d 'What to do when there is no room [default: reject]' -r -f -a "reject\t''
wait\t''
drop-oldest\t''"
complete -c mmq -n "__fish_mmq_using_subcommand put" -l arena-size -d 'The unit of mapping, for new files [default: 128MiB]' -r
complete -c mmq -n "__fish_mmq_using_subcommand put" -l mode -d 'Permission bits of the queue\'s files, as 640: who else may look (r), or open it (w) [default: those that are there, or as the umask says]' -r
complete -c mmq -n "__fish_mmq_using_subcommand put" -l framing -d 'Where a message ends [default: line]' -r -f -a "line\t'a newline behind each message'
null\t'a NUL behind each message, as for xargs -0'
length\t'the length before each: four bytes, big-endian; for any bytes'
varint\t'the length before each, in LEB128; for any bytes'
json\t'a JSON object in a line; for any bytes'
raw\t'nothing between messages; a file is one message'"
complete -c mmq -n "__fish_mmq_using_subcommand put" -l wait-lock -d 'Wait while another process has the queue, so long or for ever; status 4 then' -r
complete -c mmq -n "__fish_mmq_using_subcommand put" -l batch -d 'Put in all of the input, or nothing, also after a crash'
complete -c mmq -n "__fish_mmq_using_subcommand put" -l print-seq -d 'Print the number of each message'
complete -c mmq -n "__fish_mmq_using_subcommand put" -l no-flush -d 'Leave it to the system when the messages reach the disk'
complete -c mmq -n "__fish_mmq_using_subcommand put" -s 0 -l null -d 'The same as --framing null'
complete -c mmq -n "__fish_mmq_using_subcommand put" -l keep-cr -d 'With line framing: a carriage return before a newline belongs to the message'
complete -c mmq -n "__fish_mmq_using_subcommand put" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand put" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand put" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand put" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmq -n "__fish_mmq_using_subcommand take" -s n -l count -d 'At most so many [default: all there are]' -r
complete -c mmq -n "__fish_mmq_using_subcommand take" -l consumer -d 'The consumer whose messages they are [default: the queue\'s own, which has no name]' -r
complete -c mmq -n "__fish_mmq_using_subcommand take" -l wait -d 'Wait for the first message, so long or for ever; status 3 when none came' -r
complete -c mmq -n "__fish_mmq_using_subcommand take" -l framing -d 'Where a message ends [default: line]' -r -f -a "line\t'a newline behind each message'
null\t'a NUL behind each message, as for xargs -0'
length\t'the length before each: four bytes, big-endian; for any bytes'
varint\t'the length before each, in LEB128; for any bytes'
json\t'a JSON object in a line; for any bytes'
raw\t'nothing between messages; a file is one message'"
complete -c mmq -n "__fish_mmq_using_subcommand take" -l decode -d 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once' -r
complete -c mmq -n "__fish_mmq_using_subcommand take" -l wait-lock -d 'Wait while another process has the queue, so long or for ever; status 4 then' -r
complete -c mmq -n "__fish_mmq_using_subcommand take" -l sync -d 'Remove a message only when it is durable in the file that it is written to'
complete -c mmq -n "__fish_mmq_using_subcommand take" -s f -l follow -d 'Go on for ever. While nothing is there, others can open the queue'
complete -c mmq -n "__fish_mmq_using_subcommand take" -s 0 -l null -d 'The same as --framing null'
complete -c mmq -n "__fish_mmq_using_subcommand take" -l strict -d 'End with status 6 before the first message that holds its own delimiter'
complete -c mmq -n "__fish_mmq_using_subcommand take" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand take" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand take" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand take" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmq -n "__fish_mmq_using_subcommand each" -s j -l jobs -d 'How many commands run at a time [default: 1]' -r
complete -c mmq -n "__fish_mmq_using_subcommand each" -l retries -d 'How often a message comes again [default: 5]' -r
complete -c mmq -n "__fish_mmq_using_subcommand each" -l dead -d 'The queue for messages that failed too often; it is made when it is missing, as open to others as DIR' -r -F
complete -c mmq -n "__fish_mmq_using_subcommand each" -l backoff -d 'Wait so long after the first failure, twice as long after each further one, an hour at most' -r
complete -c mmq -n "__fish_mmq_using_subcommand each" -l timeout -d 'Kill a command, and all that it has started, after so long: it has failed' -r
complete -c mmq -n "__fish_mmq_using_subcommand each" -l consumer -d 'The consumer whose messages they are [default: the queue\'s own, which has no name]' -r
complete -c mmq -n "__fish_mmq_using_subcommand each" -l wait -d 'Wait for the first message, so long or for ever; status 3 when none came' -r
complete -c mmq -n "__fish_mmq_using_subcommand each" -l wait-lock -d 'Wait while another process has the queue, so long or for ever; status 4 then' -r
complete -c mmq -n "__fish_mmq_using_subcommand each" -s f -l follow -d 'Go on for ever. While nothing is there, others can open the queue'
complete -c mmq -n "__fish_mmq_using_subcommand each" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand each" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand each" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand each" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand redrive" -s n -l count -d 'At most so many [default: all there are]' -r
complete -c mmq -n "__fish_mmq_using_subcommand redrive" -l wait-lock -d 'Wait while another process has the queue, so long or for ever; status 4 then' -r
complete -c mmq -n "__fish_mmq_using_subcommand redrive" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand redrive" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand redrive" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand redrive" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l consumer -d 'The consumer that it reads through [default: forward]' -r
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l name -d 'What the far side calls the queue [default: its directory\'s]' -r
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l keep -d 'Keep so many messages that are there [default: 10000]' -r
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l keep-bytes -d 'Keep so many bytes of them [default: 64M]' -r
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l on-refused -d 'What becomes of a message that the far side refuses [default: stop]' -r -f -a "stop\t''
skip\t''
dead\t''"
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l dead -d 'The queue for refused messages; it is made when it is missing, as open to others as DIR' -r -F
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l if-forgotten -d 'When the far side has forgotten the queue: send what is kept, or go on' -r -f -a "resend\t''
continue\t''
stop\t''"
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l gaps -d 'How missing messages are reported to the far side [default: header]' -r -f -a "header\t''
message\t''
none\t''"
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l metrics -d 'Keep figures for Prometheus in this file' -r -F
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l key -d 'The stream\'s key' -r
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l stream -d 'The stream' -r
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l subject -d 'The subject [default: mmq.NAME]' -r
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l mode -d 'How messages are sent [default: as the stream allows]' -r -f -a "batch\t''
chain\t''
window\t''"
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l creds -d 'The credentials file' -r -F
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l nkey -d 'The file with the seed of an nkey' -r -F
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l ca -d 'The certificates of authorities to trust' -r -F
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l cert -d 'The client\'s certificate' -r -F
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l cert-key -d 'The client\'s private key' -r -F
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l wait-lock -d 'Wait while another process has the queue, so long or for ever; status 4 then' -r
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l once -d 'End when all that is here is there, and not at a signal alone'
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand forward" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand forward" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand forward" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and not __fish_seen_subcommand_from add seek rm fork help" -l wait-lock -d 'Wait while another process has the queue, so long or for ever; status 4 then' -r
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and not __fish_seen_subcommand_from add seek rm fork help" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and not __fish_seen_subcommand_from add seek rm fork help" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and not __fish_seen_subcommand_from add seek rm fork help" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and not __fish_seen_subcommand_from add seek rm fork help" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and not __fish_seen_subcommand_from add seek rm fork help" -a "add" -d 'Make a consumer'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and not __fish_seen_subcommand_from add seek rm fork help" -a "seek" -d 'Move a consumer'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and not __fish_seen_subcommand_from add seek rm fork help" -a "rm" -d 'Remove a consumer'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and not __fish_seen_subcommand_from add seek rm fork help" -a "fork" -d 'Make a consumer at the place of another'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and not __fish_seen_subcommand_from add seek rm fork help" -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from add" -l at -d 'Where it begins [default: first]' -r
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from add" -l wait-lock -d 'Wait while another process has the queue, so long or for ever; status 4 then' -r
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from add" -s y -l yes -d 'Give messages up without asking'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from add" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from add" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from add" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from seek" -l wait-lock -d 'Wait while another process has the queue, so long or for ever; status 4 then' -r
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from seek" -s y -l yes -d 'Give messages up without asking'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from seek" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from seek" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from seek" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from seek" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from rm" -l wait-lock -d 'Wait while another process has the queue, so long or for ever; status 4 then' -r
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from rm" -s y -l yes -d 'Give messages up without asking'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from rm" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from rm" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from rm" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from rm" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from fork" -l wait-lock -d 'Wait while another process has the queue, so long or for ever; status 4 then' -r
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from fork" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from fork" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from fork" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from fork" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from help" -f -a "add" -d 'Make a consumer'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from help" -f -a "seek" -d 'Move a consumer'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from help" -f -a "rm" -d 'Remove a consumer'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from help" -f -a "fork" -d 'Make a consumer at the place of another'
complete -c mmq -n "__fish_mmq_using_subcommand consumers; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mmq -n "__fish_mmq_using_subcommand purge" -l before -d 'Up to there [default: last, all of them]' -r
complete -c mmq -n "__fish_mmq_using_subcommand purge" -l wait-lock -d 'Wait while another process has the queue, so long or for ever; status 4 then' -r
complete -c mmq -n "__fish_mmq_using_subcommand purge" -s y -l yes -d 'Give messages up without asking'
complete -c mmq -n "__fish_mmq_using_subcommand purge" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand purge" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand purge" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand purge" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand copy" -l wait-lock -d 'Wait while another process has the queue, so long or for ever; status 4 then' -r
complete -c mmq -n "__fish_mmq_using_subcommand copy" -l new-id -d 'The copy is a queue of its own, with an id of its own [the default]'
complete -c mmq -n "__fish_mmq_using_subcommand copy" -l same-id -d 'The copy is a backup with the queue\'s id, to replace the queue'
complete -c mmq -n "__fish_mmq_using_subcommand copy" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand copy" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand copy" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand copy" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand dump" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand dump" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand dump" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand dump" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand load" -l arena-size -d 'The unit of mapping [default: 128MiB]' -r
complete -c mmq -n "__fish_mmq_using_subcommand load" -l mode -d 'Permission bits of the queue\'s files, as 640: who else may look (r), or open it (w) [default: those that are there, or as the umask says]' -r
complete -c mmq -n "__fish_mmq_using_subcommand load" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand load" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand load" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand load" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand salvage" -l to -d 'Put the messages into a new queue: a directory that is missing or empty' -r -F
complete -c mmq -n "__fish_mmq_using_subcommand salvage" -l mode -d 'Permission bits of NEW\'s files, as 640 [default: those that all the files have that are read]' -r
complete -c mmq -n "__fish_mmq_using_subcommand salvage" -l framing -d 'Where a message ends [default: line]' -r -f -a "line\t'a newline behind each message'
null\t'a NUL behind each message, as for xargs -0'
length\t'the length before each: four bytes, big-endian; for any bytes'
varint\t'the length before each, in LEB128; for any bytes'
json\t'a JSON object in a line; for any bytes'
raw\t'nothing between messages; a file is one message'"
complete -c mmq -n "__fish_mmq_using_subcommand salvage" -l decode -d 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once' -r
complete -c mmq -n "__fish_mmq_using_subcommand salvage" -l spares -d 'Drained segments too: messages that were taken come back'
complete -c mmq -n "__fish_mmq_using_subcommand salvage" -s 0 -l null -d 'The same as --framing null'
complete -c mmq -n "__fish_mmq_using_subcommand salvage" -l strict -d 'End with status 6 before the first message that holds its own delimiter'
complete -c mmq -n "__fish_mmq_using_subcommand salvage" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand salvage" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand salvage" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand salvage" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c mmq -n "__fish_mmq_using_subcommand import" -l as -d 'What the directory is [default: its files\' names say]' -r -f -a "bigqueue-0.1\t''
bigqueue-0.2\t''
bigqueue-0.4\t''
bigqueue-0.5\t''
pqueue\t''
bigqueue-0.3\t''
bigqueue-0.6\t''"
complete -c mmq -n "__fish_mmq_using_subcommand import" -l order -d 'What the order of pqueue\'s segments goes by [default: name]' -r -f -a "name\t''
mtime\t''"
complete -c mmq -n "__fish_mmq_using_subcommand import" -l rename -d 'Call a consumer otherwise; OLD as it is, or as a report writes it' -r
complete -c mmq -n "__fish_mmq_using_subcommand import" -l stop-at-empty-run -d 'End the queue before so many messages of no bytes that follow each other' -r
complete -c mmq -n "__fish_mmq_using_subcommand import" -l mode -d 'Permission bits of the queue\'s files, as 640: who else may look (r), or open it (w) [default: those that are there, or as the umask says]' -r
complete -c mmq -n "__fish_mmq_using_subcommand import" -s n -l dry-run -d 'Check and report alone'
complete -c mmq -n "__fish_mmq_using_subcommand import" -l all -d 'Also what every consumer has taken, as far as it is there'
complete -c mmq -n "__fish_mmq_using_subcommand import" -l force -d 'Also when a process has the files open'
complete -c mmq -n "__fish_mmq_using_subcommand import" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand import" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand import" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand import" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand spool" -l output -d 'Write there instead' -r -F
complete -c mmq -n "__fish_mmq_using_subcommand spool" -l arena-size -d 'The unit of mapping [default: 128MiB]' -r
complete -c mmq -n "__fish_mmq_using_subcommand spool" -l mode -d 'Permission bits of the queue\'s files, as 640: who else may look (r), or open it (w) [default: those that are there, or as the umask says]' -r
complete -c mmq -n "__fish_mmq_using_subcommand spool" -l wait-lock -d 'Wait while another process has the queue, so long or for ever; status 4 then' -r
complete -c mmq -n "__fish_mmq_using_subcommand spool" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand spool" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand spool" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand spool" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand bench" -l size -d 'Length of a message [default: 128]' -r
complete -c mmq -n "__fish_mmq_using_subcommand bench" -l count -d 'How many messages [default: 1000000, or 256 MiB of them; 1000 with --durable]' -r
complete -c mmq -n "__fish_mmq_using_subcommand bench" -l threads -d 'How many threads put in, and how many take out meanwhile [default: 1,1]' -r
complete -c mmq -n "__fish_mmq_using_subcommand bench" -l durable -d 'Each message is durable when its call returns'
complete -c mmq -n "__fish_mmq_using_subcommand bench" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand bench" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand bench" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand bench" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand completions" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand completions" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand completions" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand completions" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand man" -l json -d 'For programs: JSON on standard output, and a failure as the last line of standard error'
complete -c mmq -n "__fish_mmq_using_subcommand man" -s q -l quiet -d 'Say nothing on standard error but failures'
complete -c mmq -n "__fish_mmq_using_subcommand man" -l no-progress -d 'Draw no line of progress'
complete -c mmq -n "__fish_mmq_using_subcommand man" -s h -l help -d 'Print help'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "stat" -d 'Figures of queues: how many messages wait, how old, who has it'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "cat" -d 'Show the messages that wait for a consumer, the oldest first, and leave them there'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "tail" -d 'Show the newest messages, and follow'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "gaps" -d 'Show which messages will never come, and why'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "verify" -d 'Check every header, checksum, number, seal and place, and say what is damaged'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "put" -d 'Put messages in, from standard input or files; status 0: a power cut takes none of them'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "take" -d 'Remove messages and print them, the oldest first'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "each" -d 'Run a command for each message, until it succeeds'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "redrive" -d 'Put dead letters back into their queue'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "forward" -d 'Send messages on to NATS JetStream or a Redis stream, each once'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "consumers" -d 'Consumers: each has a place of its own and sees every message'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "purge" -d 'Give up messages: every consumer goes on behind them'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "copy" -d 'Make a second queue with the same messages, numbers and consumers'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "dump" -d 'Print all of a queue as JSON lines, for `mmq load`'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "load" -d 'Make a queue out of what `mmq dump` printed'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "salvage" -d 'Get messages out of segment files: damaged, set aside, drained, or without their queue'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "import" -d 'Make a queue of a directory of bigqueue or pqueue, which is only read'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "spool" -d 'Send a file through a queue, line by line, and check that it comes out unchanged'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "bench" -d 'Measure what the disk of a directory gives, in a queue that is removed at the end'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "completions" -d 'Print what a shell needs to complete this tool\'s command line'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "man" -d 'Print this tool\'s page of the manual, or write those of all commands into a directory'
complete -c mmq -n "__fish_mmq_using_subcommand help; and not __fish_seen_subcommand_from stat cat tail gaps verify put take each redrive forward consumers purge copy dump load salvage import spool bench completions man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c mmq -n "__fish_mmq_using_subcommand help; and __fish_seen_subcommand_from consumers" -f -a "add" -d 'Make a consumer'
complete -c mmq -n "__fish_mmq_using_subcommand help; and __fish_seen_subcommand_from consumers" -f -a "seek" -d 'Move a consumer'
complete -c mmq -n "__fish_mmq_using_subcommand help; and __fish_seen_subcommand_from consumers" -f -a "rm" -d 'Remove a consumer'
complete -c mmq -n "__fish_mmq_using_subcommand help; and __fish_seen_subcommand_from consumers" -f -a "fork" -d 'Make a consumer at the place of another'
