
use builtin;
use str;

set edit:completion:arg-completer[mmq] = {|@words|
    fn spaces {|n|
        builtin:repeat $n ' ' | str:join ''
    }
    fn cand {|text desc|
        edit:complex-candidate $text &display=$text' '(spaces (- 14 (wcswidth $text)))$desc
    }
    var command = 'mmq'
    for word $words[1..-1] {
        if (str:has-prefix $word '-') {
            break
        }
        set command = $command';'$word
    }
    var completions = [
        &'mmq'= {
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
            cand -V 'Print version'
            cand --version 'Print version'
            cand stat 'Figures of queues: how many messages wait, how old, who has it'
            cand cat 'Show the messages that wait for a consumer, the oldest first, and leave them there'
            cand peek 'Show the messages that wait for a consumer, the oldest first, and leave them there'
            cand tail 'Show the newest messages, and follow'
            cand gaps 'Show which messages will never come, and why'
            cand verify 'Check every header, checksum, number, seal and place, and say what is damaged'
            cand put 'Put messages in, from standard input or files; status 0: a power cut takes none of them'
            cand take 'Remove messages and print them, the oldest first'
            cand each 'Run a command for each message, until it succeeds'
            cand redrive 'Put dead letters back into their queue'
            cand forward 'Send messages on to NATS JetStream or a Redis stream, each once'
            cand consumers 'Consumers: each has a place of its own and sees every message'
            cand purge 'Give up messages: every consumer goes on behind them'
            cand copy 'Make a second queue with the same messages, numbers and consumers'
            cand dump 'Print all of a queue as JSON lines, for `mmq load`'
            cand load 'Make a queue out of what `mmq dump` printed'
            cand salvage 'Get messages out of segment files: damaged, set aside, drained, or without their queue'
            cand import 'Make a queue of a directory of bigqueue or pqueue, which is only read'
            cand spool 'Send a file through a queue, line by line, and check that it comes out unchanged'
            cand bench 'Measure what the disk of a directory gives, in a queue that is removed at the end'
            cand completions 'Print what a shell needs to complete this tool''s command line'
            cand man 'Print this tool''s page of the manual, or write those of all commands into a directory'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'mmq;stat'= {
            cand --color 'Colours; auto: on a terminal, unless NO_COLOR is set or TERM is dumb [default: auto]'
            cand --output 'Write it there, at once as a whole'
            cand --label 'The label `queue`, for each queue one [default: its path]'
            cand --watch 'Show it again and again [default: each second]'
            cand --max-lag 'Messages that may wait for a consumer'
            cand --max-age 'How old the oldest of them may be'
            cand --max-bytes 'Bytes of the segments that they take'
            cand --consumer 'The consumer [default: each of them]'
            cand --exact 'Sizes in bytes'
            cand --prometheus 'In the text format of Prometheus'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;cat'= {
            cand -n 'At most so many'
            cand --messages 'At most so many'
            cand --consumer 'The consumer whose messages they are [default: the queue''s own, which has no name]'
            cand --from 'Begin there, also before the consumer''s place'
            cand --to 'End before that message'
            cand --grep 'Only messages that hold these bytes'
            cand --head 'Only so many first bytes of each'
            cand --framing 'Where a message ends [default: line]'
            cand --decode 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once'
            cand --all 'Everything that is held, whoever has taken it'
            cand -c 'Only say how many they are'
            cand --count 'Only say how many they are'
            cand -0 'The same as --framing null'
            cand --null 'The same as --framing null'
            cand --strict 'End with status 6 before the first message that holds its own delimiter'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mmq;peek'= {
            cand -n 'At most so many'
            cand --messages 'At most so many'
            cand --consumer 'The consumer whose messages they are [default: the queue''s own, which has no name]'
            cand --from 'Begin there, also before the consumer''s place'
            cand --to 'End before that message'
            cand --grep 'Only messages that hold these bytes'
            cand --head 'Only so many first bytes of each'
            cand --framing 'Where a message ends [default: line]'
            cand --decode 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once'
            cand --all 'Everything that is held, whoever has taken it'
            cand -c 'Only say how many they are'
            cand --count 'Only say how many they are'
            cand -0 'The same as --framing null'
            cand --null 'The same as --framing null'
            cand --strict 'End with status 6 before the first message that holds its own delimiter'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mmq;tail'= {
            cand -n 'So many of the newest [default: 10]'
            cand --messages 'So many of the newest [default: 10]'
            cand --from 'Begin there'
            cand --interval 'How often to look for more [default: 50ms]'
            cand --grep 'Only messages that hold these bytes'
            cand --head 'Only so many first bytes of each'
            cand --framing 'Where a message ends [default: line]'
            cand --decode 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once'
            cand -f 'Go on with the messages that come, for ever'
            cand --follow 'Go on with the messages that come, for ever'
            cand --durable 'Only messages that a power cut cannot take'
            cand -0 'The same as --framing null'
            cand --null 'The same as --framing null'
            cand --strict 'End with status 6 before the first message that holds its own delimiter'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mmq;gaps'= {
            cand --deep 'Read every message'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;verify'= {
            cand --color 'Colours; auto: on a terminal, unless NO_COLOR is set or TERM is dumb [default: auto]'
            cand --quick 'Leave the messages out: the index and the headers of segments alone'
            cand --as-opened 'First say what the next opening will make of the queue'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;put'= {
            cand --max-bytes 'The most disk that the queue may take'
            cand --on-full 'What to do when there is no room [default: reject]'
            cand --arena-size 'The unit of mapping, for new files [default: 128MiB]'
            cand --mode 'Permission bits of the queue''s files, as 640: who else may look (r), or open it (w) [default: those that are there, or as the umask says]'
            cand --framing 'Where a message ends [default: line]'
            cand --wait-lock 'Wait while another process has the queue, so long or for ever; status 4 then'
            cand --batch 'Put in all of the input, or nothing, also after a crash'
            cand --print-seq 'Print the number of each message'
            cand --no-flush 'Leave it to the system when the messages reach the disk'
            cand -0 'The same as --framing null'
            cand --null 'The same as --framing null'
            cand --keep-cr 'With line framing: a carriage return before a newline belongs to the message'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mmq;take'= {
            cand -n 'At most so many [default: all there are]'
            cand --count 'At most so many [default: all there are]'
            cand --consumer 'The consumer whose messages they are [default: the queue''s own, which has no name]'
            cand --wait 'Wait for the first message, so long or for ever; status 3 when none came'
            cand --framing 'Where a message ends [default: line]'
            cand --decode 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once'
            cand --wait-lock 'Wait while another process has the queue, so long or for ever; status 4 then'
            cand --sync 'Remove a message only when it is durable in the file that it is written to'
            cand -f 'Go on for ever. While nothing is there, others can open the queue'
            cand --follow 'Go on for ever. While nothing is there, others can open the queue'
            cand -0 'The same as --framing null'
            cand --null 'The same as --framing null'
            cand --strict 'End with status 6 before the first message that holds its own delimiter'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mmq;each'= {
            cand -j 'How many commands run at a time [default: 1]'
            cand --jobs 'How many commands run at a time [default: 1]'
            cand --retries 'How often a message comes again [default: 5]'
            cand --dead 'The queue for messages that failed too often; it is made when it is missing, as open to others as DIR'
            cand --backoff 'Wait so long after the first failure, twice as long after each further one, an hour at most'
            cand --timeout 'Kill a command, and all that it has started, after so long: it has failed'
            cand --consumer 'The consumer whose messages they are [default: the queue''s own, which has no name]'
            cand --wait 'Wait for the first message, so long or for ever; status 3 when none came'
            cand --wait-lock 'Wait while another process has the queue, so long or for ever; status 4 then'
            cand -f 'Go on for ever. While nothing is there, others can open the queue'
            cand --follow 'Go on for ever. While nothing is there, others can open the queue'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;redrive'= {
            cand -n 'At most so many [default: all there are]'
            cand --count 'At most so many [default: all there are]'
            cand --wait-lock 'Wait while another process has the queue, so long or for ever; status 4 then'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;forward'= {
            cand --consumer 'The consumer that it reads through [default: forward]'
            cand --name 'What the far side calls the queue [default: its directory''s]'
            cand --keep 'Keep so many messages that are there [default: 10000]'
            cand --keep-bytes 'Keep so many bytes of them [default: 64M]'
            cand --on-refused 'What becomes of a message that the far side refuses [default: stop]'
            cand --dead 'The queue for refused messages; it is made when it is missing, as open to others as DIR'
            cand --if-forgotten 'When the far side has forgotten the queue: send what is kept, or go on'
            cand --gaps 'How missing messages are reported to the far side [default: header]'
            cand --metrics 'Keep figures for Prometheus in this file'
            cand --key 'The stream''s key'
            cand --stream 'The stream'
            cand --subject 'The subject [default: mmq.NAME]'
            cand --mode 'How messages are sent [default: as the stream allows]'
            cand --creds 'The credentials file'
            cand --nkey 'The file with the seed of an nkey'
            cand --ca 'The certificates of authorities to trust'
            cand --cert 'The client''s certificate'
            cand --cert-key 'The client''s private key'
            cand --wait-lock 'Wait while another process has the queue, so long or for ever; status 4 then'
            cand --once 'End when all that is here is there, and not at a signal alone'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;consumers'= {
            cand --wait-lock 'Wait while another process has the queue, so long or for ever; status 4 then'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
            cand add 'Make a consumer'
            cand seek 'Move a consumer'
            cand rm 'Remove a consumer'
            cand fork 'Make a consumer at the place of another'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'mmq;consumers;add'= {
            cand --at 'Where it begins [default: first]'
            cand --wait-lock 'Wait while another process has the queue, so long or for ever; status 4 then'
            cand -y 'Give messages up without asking'
            cand --yes 'Give messages up without asking'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;consumers;seek'= {
            cand --wait-lock 'Wait while another process has the queue, so long or for ever; status 4 then'
            cand -y 'Give messages up without asking'
            cand --yes 'Give messages up without asking'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;consumers;rm'= {
            cand --wait-lock 'Wait while another process has the queue, so long or for ever; status 4 then'
            cand -y 'Give messages up without asking'
            cand --yes 'Give messages up without asking'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;consumers;fork'= {
            cand --wait-lock 'Wait while another process has the queue, so long or for ever; status 4 then'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;consumers;help'= {
            cand add 'Make a consumer'
            cand seek 'Move a consumer'
            cand rm 'Remove a consumer'
            cand fork 'Make a consumer at the place of another'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'mmq;consumers;help;add'= {
        }
        &'mmq;consumers;help;seek'= {
        }
        &'mmq;consumers;help;rm'= {
        }
        &'mmq;consumers;help;fork'= {
        }
        &'mmq;consumers;help;help'= {
        }
        &'mmq;purge'= {
            cand --before 'Up to there [default: last, all of them]'
            cand --wait-lock 'Wait while another process has the queue, so long or for ever; status 4 then'
            cand -y 'Give messages up without asking'
            cand --yes 'Give messages up without asking'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;copy'= {
            cand --wait-lock 'Wait while another process has the queue, so long or for ever; status 4 then'
            cand --new-id 'The copy is a queue of its own, with an id of its own [the default]'
            cand --same-id 'The copy is a backup with the queue''s id, to replace the queue'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;dump'= {
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;load'= {
            cand --arena-size 'The unit of mapping [default: 128MiB]'
            cand --mode 'Permission bits of the queue''s files, as 640: who else may look (r), or open it (w) [default: those that are there, or as the umask says]'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;salvage'= {
            cand --to 'Put the messages into a new queue: a directory that is missing or empty'
            cand --mode 'Permission bits of NEW''s files, as 640 [default: those that all the files have that are read]'
            cand --framing 'Where a message ends [default: line]'
            cand --decode 'Show each message as this shell command answers it: one process, --framing length both ways, each answer at once'
            cand --spares 'Drained segments too: messages that were taken come back'
            cand -0 'The same as --framing null'
            cand --null 'The same as --framing null'
            cand --strict 'End with status 6 before the first message that holds its own delimiter'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help (see more with ''--help'')'
            cand --help 'Print help (see more with ''--help'')'
        }
        &'mmq;import'= {
            cand --as 'What the directory is [default: its files'' names say]'
            cand --order 'What the order of pqueue''s segments goes by [default: name]'
            cand --rename 'Call a consumer otherwise; OLD as it is, or as a report writes it'
            cand --stop-at-empty-run 'End the queue before so many messages of no bytes that follow each other'
            cand --mode 'Permission bits of the queue''s files, as 640: who else may look (r), or open it (w) [default: those that are there, or as the umask says]'
            cand -n 'Check and report alone'
            cand --dry-run 'Check and report alone'
            cand --all 'Also what every consumer has taken, as far as it is there'
            cand --force 'Also when a process has the files open'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;spool'= {
            cand --output 'Write there instead'
            cand --arena-size 'The unit of mapping [default: 128MiB]'
            cand --mode 'Permission bits of the queue''s files, as 640: who else may look (r), or open it (w) [default: those that are there, or as the umask says]'
            cand --wait-lock 'Wait while another process has the queue, so long or for ever; status 4 then'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;bench'= {
            cand --size 'Length of a message [default: 128]'
            cand --count 'How many messages [default: 1000000, or 256 MiB of them; 1000 with --durable]'
            cand --threads 'How many threads put in, and how many take out meanwhile [default: 1,1]'
            cand --durable 'Each message is durable when its call returns'
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;completions'= {
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;man'= {
            cand --json 'For programs: JSON on standard output, and a failure as the last line of standard error'
            cand -q 'Say nothing on standard error but failures'
            cand --quiet 'Say nothing on standard error but failures'
            cand --no-progress 'Draw no line of progress'
            cand -h 'Print help'
            cand --help 'Print help'
        }
        &'mmq;help'= {
            cand stat 'Figures of queues: how many messages wait, how old, who has it'
            cand cat 'Show the messages that wait for a consumer, the oldest first, and leave them there'
            cand tail 'Show the newest messages, and follow'
            cand gaps 'Show which messages will never come, and why'
            cand verify 'Check every header, checksum, number, seal and place, and say what is damaged'
            cand put 'Put messages in, from standard input or files; status 0: a power cut takes none of them'
            cand take 'Remove messages and print them, the oldest first'
            cand each 'Run a command for each message, until it succeeds'
            cand redrive 'Put dead letters back into their queue'
            cand forward 'Send messages on to NATS JetStream or a Redis stream, each once'
            cand consumers 'Consumers: each has a place of its own and sees every message'
            cand purge 'Give up messages: every consumer goes on behind them'
            cand copy 'Make a second queue with the same messages, numbers and consumers'
            cand dump 'Print all of a queue as JSON lines, for `mmq load`'
            cand load 'Make a queue out of what `mmq dump` printed'
            cand salvage 'Get messages out of segment files: damaged, set aside, drained, or without their queue'
            cand import 'Make a queue of a directory of bigqueue or pqueue, which is only read'
            cand spool 'Send a file through a queue, line by line, and check that it comes out unchanged'
            cand bench 'Measure what the disk of a directory gives, in a queue that is removed at the end'
            cand completions 'Print what a shell needs to complete this tool''s command line'
            cand man 'Print this tool''s page of the manual, or write those of all commands into a directory'
            cand help 'Print this message or the help of the given subcommand(s)'
        }
        &'mmq;help;stat'= {
        }
        &'mmq;help;cat'= {
        }
        &'mmq;help;tail'= {
        }
        &'mmq;help;gaps'= {
        }
        &'mmq;help;verify'= {
        }
        &'mmq;help;put'= {
        }
        &'mmq;help;take'= {
        }
        &'mmq;help;each'= {
        }
        &'mmq;help;redrive'= {
        }
        &'mmq;help;forward'= {
        }
        &'mmq;help;consumers'= {
            cand add 'Make a consumer'
            cand seek 'Move a consumer'
            cand rm 'Remove a consumer'
            cand fork 'Make a consumer at the place of another'
        }
        &'mmq;help;consumers;add'= {
        }
        &'mmq;help;consumers;seek'= {
        }
        &'mmq;help;consumers;rm'= {
        }
        &'mmq;help;consumers;fork'= {
        }
        &'mmq;help;purge'= {
        }
        &'mmq;help;copy'= {
        }
        &'mmq;help;dump'= {
        }
        &'mmq;help;load'= {
        }
        &'mmq;help;salvage'= {
        }
        &'mmq;help;import'= {
        }
        &'mmq;help;spool'= {
        }
        &'mmq;help;bench'= {
        }
        &'mmq;help;completions'= {
        }
        &'mmq;help;man'= {
        }
        &'mmq;help;help'= {
        }
    ]
    $completions[$command]
}
